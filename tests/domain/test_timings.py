"""Where the time went: stages follow one another, phases are summed by their path."""

from app.domain.timings import Timing
from trtforge.contract.engines import PhaseTiming


def test_stages_follow_one_another() -> None:
    timing = Timing(100.0)
    timing.enter("parse", 101.5)
    timing.enter("build", 102.0)
    assert timing.total(112.25).stages == {"prepare": 1.5, "parse": 0.5, "build": 10.25}
    assert timing.total(113.25).stages["build"] == 11.25, "looking ends nothing"


def test_a_stage_that_comes_again_is_added_up() -> None:
    timing = Timing(0.0)
    for stage, at in (("build", 1.0), ("prepare", 2.0), ("build", 4.0)):
        timing.enter(stage, at)
    assert timing.total(8.0).stages == {"prepare": 3.0, "build": 5.0}


def test_phases_of_one_path_are_summed_and_others_kept_apart() -> None:
    timing = Timing(0.0)
    timing.opened(1, None, "outer")
    for number in (2, 3):
        timing.opened(number, 1, "inner")
        timing.closed(number, 0.25)
    timing.opened(4, None, "inner")
    timing.closed(4, 1.0)
    timing.closed(1, 2.0)
    assert timing.total(3.0).phases == (
        PhaseTiming(path=("outer", "inner"), count=2, seconds=0.5),
        PhaseTiming(path=("inner",), count=1, seconds=1.0),
        PhaseTiming(path=("outer",), count=1, seconds=2.0),
    )


def test_strays_count_nothing() -> None:
    timing = Timing(0.0)
    timing.closed(7, 1.0)
    timing.opened(1, 99, "child of nobody")
    timing.closed(1, 1.0)
    timing.closed(1, 1.0)
    assert timing.total(1.0).phases == (PhaseTiming(path=("child of nobody",), count=1, seconds=1.0),)
