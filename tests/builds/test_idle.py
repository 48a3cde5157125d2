"""What is known of a running build: only what was looked at counts as idle."""

from datetime import UTC, datetime
from time import sleep

import pytest

from app.builds.live import BUSY_SHARE, LiveBuild


def now() -> datetime:
    return datetime.now(UTC)


def test_time_nobody_looked_at_is_not_idle() -> None:
    live = LiveBuild(now)
    assert live.idle_s == 0
    live.sample(1.0, 1)
    sleep(0.05)
    assert live.idle_s == 0
    assert live.activity is None
    live.sample(1.0, 1)
    assert live.idle_s >= 0.05
    assert live.activity == "idle"


def test_a_word_and_work_both_end_idleness() -> None:
    live = LiveBuild(now)
    for _ in range(2):
        live.sample(1.0, 1)
        sleep(0.01)
    assert live.idle_s > 0
    live.heard()
    assert live.idle_s == 0
    live.sample(1.0 + 10, 1)
    assert live.idle_s == 0
    assert live.activity == "working"


def test_a_little_ticking_is_idle() -> None:
    live = LiveBuild(now)
    live.sample(0.0, 1)
    sleep(0.1)
    live.sample(0.1 * BUSY_SHARE / 2, 7)
    assert live.activity == "idle"
    assert live.progress().rss_bytes == 7
    assert live.progress().cpu_s == pytest.approx(0.1 * BUSY_SHARE / 2, abs=0.001)
