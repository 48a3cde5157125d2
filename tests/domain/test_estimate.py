"""An estimate says what finished builds took, as bounds; and nothing when they say nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.estimate import MARGIN, MOST_PACE, WIDEST, History, Mark, Past, estimate, path_of

seconds = st.floats(min_value=0.001, max_value=100_000)
paths = st.sampled_from(["prepare", "parse", "build", "build > a", "build > a > b"])


@st.composite
def pasts(draw: st.DrawFn) -> Past:
    total = draw(seconds)
    shares = draw(st.dictionaries(paths, st.floats(min_value=0, max_value=1)))
    return Past(total, {path: total * share for path, share in shares.items()})


histories = st.lists(pasts(), min_size=1, max_size=10).map(lambda some: History(some, "some builds"))
marks = st.lists(st.builds(Mark, paths, st.floats(min_value=0, max_value=100_000)), max_size=5)


@given(histories, st.floats(min_value=0, max_value=200_000), marks)
def test_bounds_are_bounds(history: History, elapsed: float, seen: list[Mark]) -> None:
    found = estimate(history, elapsed, seen)
    if found is None:
        return
    low, high = found.remaining_s
    assert 0 <= low <= high
    assert found.basis == "some builds"
    assert found.total_s[0] >= round(elapsed, 3)
    assert abs(found.total_s[1] - elapsed - high) < 0.01


@given(histories)
def test_the_total_at_the_start_is_at_most_a_factor_wide(history: History) -> None:
    found = estimate(history, 0, [])
    assert found
    low, high = found.total_s
    assert high <= low * WIDEST * WIDEST + 0.01


@given(st.floats(min_value=0.1, max_value=1000), st.floats(min_value=0, max_value=1))
def test_a_build_like_the_last_ones_is_inside_at_every_moment(total: float, share: float) -> None:
    history = History([Past(total, {"build": total * 0.8})] * 3, "")
    elapsed = total * share
    seen = [Mark("build", elapsed - total * 0.2)] if share > 0.2 else []
    found = estimate(history, elapsed, seen)
    assert found
    low, high = found.remaining_s
    assert low - 0.01 <= total - elapsed <= high + 0.01


def test_no_history_and_a_build_that_outlived_it_have_none() -> None:
    assert estimate(History([], "none"), 3, []) is None
    history = History([Past(10, {"build": 8})], "1 build")
    assert estimate(history, 10 * MARGIN - 0.1, [])
    assert estimate(history, 10 * MARGIN + 0.1, []) is None
    assert estimate(history, 500, [Mark("build", 8 * MARGIN + 0.1)]) is None


def test_the_newest_mark_that_the_history_knows_decides() -> None:
    history = History([Past(100, {"parse": 90, "build": 10})], "1 build")
    seen = [Mark("build > new", 0), Mark("build", 1), Mark("parse", 81)]
    found = estimate(history, 500, seen)
    assert found
    assert found.remaining_s == (round(10 / MARGIN - 1, 3), 12.0)
    assert found.total_s == (round(500 + 10 / MARGIN - 1, 3), 512.0)
    before = estimate(history, 500, seen[2:])
    assert before
    assert before.remaining_s == (0, 36.0)


def test_only_builds_that_know_the_mark_count() -> None:
    history = History([Past(100, {"build": 10}), Past(5000, {})], "2 builds")
    found = estimate(history, 0, [Mark("build", 0)])
    assert found
    assert found.remaining_s == (round(10 / MARGIN, 3), 13.0)


@pytest.mark.parametrize(("took", "pace"), [(10, 1), (14.4, 1.2), (4.9, 0.7), (1000, MOST_PACE), (0.1, 1 / MOST_PACE)])
def test_a_slow_day_is_half_believed_up_to_a_limit(took: float, pace: float) -> None:
    history = History([Past(100, {"parse": 90, "build": 80})] * 3, "")
    found = estimate(history, took + 10, [Mark("build", 0), Mark("parse", took)])
    assert found
    assert found.remaining_s == pytest.approx((80 * pace / MARGIN, 80 * pace * MARGIN), abs=0.01)


def test_an_odd_build_does_not_widen_the_bounds_for_ever() -> None:
    found = estimate(History([Past(t, {}) for t in (10, 10, 11, 500)], ""), 0, [])
    assert found
    assert found.total_s[1] <= 11 * WIDEST


def test_stretching_stretches_everything() -> None:
    assert Past(10, {"build": 4}).stretched(1.5) == Past(15, {"build": 6})
    assert path_of("build", "a", "b") == "build > a > b"
