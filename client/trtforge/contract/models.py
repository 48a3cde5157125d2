"""Models: what was uploaded, known by one digest, inspected once."""

from typing import Any

from trtforge.contract.base import Asked, Digest, Instant, Wire
from trtforge.contract.problem import Trouble
from trtforge.contract.spec import BuildSpec, OptimizationProfile
from trtforge.contract.target import TargetSelector


class ModelFile(Wire):
    name: str
    digest: Digest
    size: int  # bytes


class Tensor(Wire):
    """An input or output of the graph. `shape` has null where an extent is open, `axes` the name the model gives it."""

    name: str
    dtype: str  # ONNX's own names in lower case: float32, int64, …
    shape: tuple[int | None, ...] | None  # None: the model does not even say the rank
    axes: tuple[str | None, ...] | None
    shape_values: bool = False


class Inspection(Wire):
    """What reading the graph once tells, without any builder."""

    opset: dict[str, int]
    ir_version: int
    producer: str
    node_count: int
    parameter_bytes: int
    operators: dict[str, int]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    problems: tuple[Trouble, ...] = ()


class Model(Inspection):
    digest: Digest
    size: int
    graph: str
    files: tuple[ModelFile, ...]
    created_at: Instant

    def inspection(self) -> dict[str, Any]:
        return self.model_dump(include=set(Inspection.model_fields))


class PreflightAsk(Asked):
    """Body of `POST /v1/models/{digest}/preflight`."""

    spec: BuildSpec = BuildSpec()
    target: TargetSelector = TargetSelector()


class Preflight(Wire):
    """What a build would fail on. `profile_template`: what was asked for with legal extents, or profiles to fill in."""

    ok: bool
    problems: tuple[Trouble, ...]
    warnings: tuple[Trouble, ...]
    profile_template: tuple[OptimizationProfile, ...]
    trtexec: str  # the same profiles as flags
