"""How much device memory an engine needs for so many execution contexts."""

from dataclasses import dataclass

from trtforge.contract.engines import Memory


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes; `total` is what to budget for the engine itself."""

    contexts: int
    weights_bytes: int
    context_bytes: int  # of each
    total_bytes: int


def memory_plan(memory: Memory, contexts: int) -> MemoryPlan | None:
    """Return weights once + `contexts` × (activations + scratch); None when the builder did not tell weights or activations.

    Weights belong to the engine and are shared by its contexts; each context has activation and scratch memory of its own,
    as large as the most demanding optimization profile needs (NVIDIA's developer guide on memory, and its maintainers in
    NVIDIA/TensorRT issues 734 and 3907). An upper bound where the builder counts scratch among the activations. Not in
    it: what CUDA takes for itself, persistent state of single layers, and the buffers of inputs and outputs.
    """
    if memory.weights_bytes is None or memory.activation_bytes is None:
        return None
    each = memory.activation_bytes + (memory.scratch_bytes or 0)
    return MemoryPlan(contexts, memory.weights_bytes, each, memory.weights_bytes + contexts * each)
