"""A tenth of the ONNX project's own test models, through the service and through the builder; `make corpus` takes all."""

from pathlib import Path

import pytest

from benchmarks.corpus import drawn, run
from benchmarks.corpus_models import models
from benchmarks.corpus_table import wrong


@pytest.mark.timeout(600)  # two children for each model: a minute on two cores that are free
def test_the_service_and_the_builder_agree_about_a_tenth_of_onnx_own_models(tmp_path: Path) -> None:
    chosen = drawn(models(), 0.1, seed=4)
    assert len(chosen) > 200
    results = run(chosen, tmp_path, slots=2, thorough=False)
    assert wrong([results[name] for name in chosen]) == []
