"""Inputs of models, legal profiles for them, and one small model for the real builder."""

from hypothesis import strategies as st

from trtforge.contract.models import Tensor
from trtforge.contract.spec import OptimizationProfile, ShapeRange

Triple = tuple[int, int, int]


def tensor(name: str, *shape: int | None, axes: tuple[str | None, ...] | None = None) -> Tensor:
    return Tensor(name=name, dtype="float32", shape=shape, axes=axes or (None,) * len(shape))


UNRANKED = Tensor(name="any", dtype="float32", shape=None, axes=None)


def ranged(*triples: Triple) -> ShapeRange:
    low, opt, high = zip(*triples, strict=True) if triples else ((), (), ())
    return ShapeRange(min=low, opt=opt, max=high)


def _rising(three: list[int]) -> Triple:
    low, opt, high = sorted(three)
    return low, opt, high


triples = st.lists(st.integers(1, 12), min_size=3, max_size=3).map(_rising)
extents = st.one_of(st.none(), st.integers(1, 12))


@st.composite
def models(draw: st.DrawFn) -> tuple[Tensor, ...]:
    """Inputs with open, fixed and named axes, of known and unknown rank."""
    inputs = []
    for name in draw(st.lists(st.sampled_from(["x", "y", "ids", "mask"]), min_size=1, unique=True)):
        shape = draw(st.one_of(st.none(), st.lists(extents, max_size=4).map(tuple)))
        axes = None
        if shape is not None:
            axes = tuple(draw(st.sampled_from([None, "batch", "?"])) if e is None else None for e in shape)
        inputs.append(Tensor(name=name, dtype="float32", shape=shape, axes=axes))
    return tuple(inputs)


@st.composite
def legal_profiles(draw: st.DrawFn, inputs: tuple[Tensor, ...]) -> OptimizationProfile:
    named: dict[str, Triple] = {}
    profile = {}
    for one in inputs:
        shape = one.shape if one.shape is not None else draw(st.lists(st.none(), max_size=3).map(tuple))
        if None not in shape and one.shape is not None and draw(st.booleans()):
            continue  # an input without open axes may be left out
        ranges = []
        for extent, axis in zip(shape, one.axes or (None,) * len(shape), strict=True):
            triple = draw(triples) if extent is None else (extent, extent, extent)
            ranges.append(named.setdefault(axis, triple) if axis else triple)
        profile[one.name] = ranged(*ranges)
    return profile
