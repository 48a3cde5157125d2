"""The files of a model, in the store and in a child's folder."""

from pathlib import Path

from app.store.base import Store
from trtforge.contract.models import Model, ModelFile

# Names that a child's folder gives itself, whatever the model calls its files.
GRAPH, PLAN = "model.onnx", "plan"
TIMINGS = ".timings"  # a link to the folder of the timing caches
BASE = ".base"  # the plan that is refitted
TAKEN = frozenset({GRAPH, PLAN, TIMINGS, BASE})


def is_here(store: Store, model: Model) -> bool:
    """Tell whether every file of a model is in the store."""
    return all(store.has_model(file.digest) for file in model.files)


def lay_out(store: Store, model: Model, folder: Path) -> None:
    """Make every file readable in `folder`: the graph as `GRAPH`, the others by their names, without copying them.

    Raises `FileNotFoundError` when one is not in the store.
    """
    for file in model.files:
        if file.name == model.graph:
            store.link_model(file.digest, folder / GRAPH)
    lay_beside(store, tuple(file for file in model.files if file.name != model.graph), folder)


def lay_beside(store: Store, files: tuple[ModelFile, ...], folder: Path) -> None:
    for file in files:
        store.link_model(file.digest, folder / file.name)
