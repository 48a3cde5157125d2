"""The ONNX project's own test models, all that it generates or ships except the big topologies."""

import warnings
from collections.abc import Iterator
from pathlib import Path

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")


def models() -> Iterator[tuple[str, bytes]]:
    """Yield ("kind/name", bytes of the file) in the order of the names. Generating all takes seconds."""
    from onnx.backend.test.loader import load_model_tests  # late: it computes every expected output

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [case for kind in KINDS for case in load_model_tests(kind=kind)]
    for case in sorted(cases, key=lambda case: (case.kind, case.name)):
        if case.model is not None:
            yield f"{case.kind}/{case.name}", case.model.SerializeToString()
        else:
            yield f"{case.kind}/{case.name}", Path(f"{case.model_dir}/model.onnx").read_bytes()
