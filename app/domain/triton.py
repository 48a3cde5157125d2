"""A model configuration of Triton (`config.pbtxt`) for an engine: what its own protobuf schema calls ModelConfig."""

import json
import re
from collections.abc import Iterator, Sequence

from app.errors import Refused
from trtforge.contract.engines import Manifest
from trtforge.contract.models import Tensor
from trtforge.contract.spec import OptimizationProfile

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")  # also the name of a folder, and of a member of a tar
PLAN_FILE = "model.plan"

TYPES = {
    "bool": "TYPE_BOOL",
    "uint8": "TYPE_UINT8",
    "int8": "TYPE_INT8",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "float16": "TYPE_FP16",
    "bfloat16": "TYPE_BF16",
    "float32": "TYPE_FP32",
}


def name_of(manifest: Manifest, name: str | None) -> str:
    """Return Triton's name for the model. Raises `Refused`: invalid_request."""
    if name is None:
        return "engine-" + manifest.engine_key.removeprefix("sha256:")[:16]
    if not NAME.fullmatch(name):
        raise Refused("invalid_request", "A model's name is letters, digits, `.`, `_` and `-`, 80 at most.")
    return name


def config_of(manifest: Manifest, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> str:
    """Return the configuration as text. Raises `Refused`: triton_unsupported.

    `max_batch_size` 0 with every extent named is right for any engine. Above 0, which lets Triton batch by itself, only
    when the first axis of every input and output is the same open axis, and each profile begins at 1.
    """
    profiles = manifest.spec.effective.profiles
    batch = _batch(profiles, inputs, outputs)
    lines = [
        f"# {manifest.engine_key}, {manifest.builder.name} {manifest.builder.version}: loads in that version only",
        *_portable(manifest),
        f"name: {_text(name)}",
        'platform: "tensorrt_plan"',
        'backend: "tensorrt"',
        f"default_model_filename: {_text(PLAN_FILE)}",
        f"max_batch_size: {batch}",
        *(line for one in inputs for line in _tensor("input", one, batch > 0)),
        *(line for one in outputs for line in _tensor("output", one, batch > 0)),
        *_instances(len(profiles)),
    ]
    return "\n".join(lines) + "\n"


def _portable(manifest: Manifest) -> Iterator[str]:
    if manifest.builder.name == "tensorrt_rtx":
        yield "# A plan of TensorRT for RTX: Triton's backend must be built with that runtime to load it"


def _batch(profiles: Sequence[OptimizationProfile], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """Return the largest batch that Triton may make of single requests; 0: none."""
    tensors = [*inputs, *outputs]
    if (
        not profiles
        or not inputs
        or any(not one.shape or one.shape[0] is not None or one.shape_values for one in tensors)
    ):
        return 0
    if len({one.axes[0] if one.axes else None for one in tensors}) > 1:
        return 0  # open axes of other names are not one batch
    ranges = [profile.get(one.name) for profile in profiles for one in inputs]
    if any(r is None or r.values or not r.min or r.min[0] != 1 for r in ranges):
        return 0
    return min(r.max[0] for r in ranges if r)


def _tensor(kind: str, tensor: Tensor, batched: bool) -> Iterator[str]:
    if tensor.dtype not in TYPES:
        raise Refused("triton_unsupported", f"Triton has no type for `{tensor.name}`: {tensor.dtype}.")
    if tensor.shape is None:
        raise Refused("triton_unsupported", f"The model does not say how many axes `{tensor.name}` has.")
    shape = tensor.shape[1:] if batched else tensor.shape
    dims = [-1 if extent is None else extent for extent in shape]
    yield f"{kind} {{"
    yield f"  name: {_text(tensor.name)}"
    yield f"  data_type: {TYPES[tensor.dtype]}"
    yield f"  dims: {json.dumps(dims or [1])}"
    if not dims:
        yield "  reshape { shape: [ ] }"  # Triton has no scalars: a tensor of one element stands for them
    if tensor.shape_values:
        yield "  is_shape_tensor: true"
    yield "}"


def _instances(profiles: int) -> Iterator[str]:
    """One instance that has every profile: Triton takes for each request the one that fits best."""
    if profiles > 1:
        names = ", ".join(_text(str(number)) for number in range(profiles))
        yield f"instance_group {{\n  kind: KIND_GPU\n  count: 1\n  profile: [{names}]\n}}"


def _text(words: str) -> str:
    """Quote for protobuf's text format: bytes outside printable ASCII as octal escapes."""
    safe = (chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:03o}" for b in words.encode())
    return f'"{"".join(safe)}"'
