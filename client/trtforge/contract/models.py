"""Models: what was uploaded, known by one digest, inspected once."""

from typing import Any

from trtforge.contract.base import Digest, Instant, Wire
from trtforge.contract.problem import Trouble


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
