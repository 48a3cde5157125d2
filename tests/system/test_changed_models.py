"""A hundred changed models over HTTP; `make fuzz` sends thousands."""

from pathlib import Path

from benchmarks.fuzz import fuzz, service

SEED, COUNT = 20, 100


def test_a_hundred_changed_models_harm_nothing(tmp_path: Path) -> None:
    broken, outcomes = fuzz(service(tmp_path), SEED, range(COUNT), tmp_path / "broken")
    assert broken == []
    assert outcomes["build: served"], outcomes  # it is no fuzz of the door alone
    assert len(outcomes) > 10, outcomes
