"""Callbacks in, messages out: order, ids, strays, slow and broken readers."""

import threading
import time
from typing import Any

import tensorrt_rtx as trt
from hypothesis import given, settings
from hypothesis import strategies as st

from app.worker.messages import Log, PhaseFinished, PhaseStarted, PhaseStep
from app.worker.monitor import MOST_WAITING, PhaseLog, monitor_for


def _sent(calls):
    sent: list[Any] = []
    with PhaseLog(sent.append) as phases:
        monitor = monitor_for(trt, phases, threading.Event(), threading.Event())
        calls(monitor)
    assert phases.error is None
    return sent


def test_nesting_reuse_of_names_and_unknown_totals():
    def calls(m):
        m.phase_start("build", None, 2)
        m.phase_start("again", "build", -1)
        m.phase_finish("again")
        m.phase_start("again", "build", 0)
        m.phase_start("deep", "again", 3)

    started = [(p.id, p.parent, p.name, p.steps) for p in _sent(calls) if isinstance(p, PhaseStarted)]
    assert started == [(1, None, "build", 2), (2, 1, "again", None), (3, 1, "again", None), (4, 3, "deep", 3)]


def test_strays_are_dropped_and_steps_collapse_to_the_latest():
    def calls(m):
        m.step_complete("never", 1)
        m.phase_finish("never")
        m.phase_start("p", "unknown parent", 9)
        for step in range(9):
            assert m.step_complete("p", step)
        m.phase_start("q", None, 1)
        m.step_complete("q", 0)
        m.phase_finish("q")
        m.step_complete("q", 1)

    sent = _sent(calls)
    assert [(type(m), m.id) for m in sent if not isinstance(m, PhaseStep)] == [
        (PhaseStarted, 1),
        (PhaseStarted, 2),
        (PhaseFinished, 2),
    ]
    assert sent[0].parent is None
    assert [m for m in sent if isinstance(m, PhaseStep)][-1] == PhaseStep(1, 8)


def test_times_are_of_the_callbacks_not_of_the_sending():
    before = time.time()

    def calls(m):
        m.phase_start("p", None, 1)
        time.sleep(0.05)
        m.phase_finish("p")

    started, finished = _sent(calls)
    assert before - 0.01 <= started.at <= time.time()
    assert finished.elapsed_s >= 0.05
    assert abs(finished.at - started.at - finished.elapsed_s) < 1e-6


def test_a_message_goes_out_before_the_interval_is_over():
    went = threading.Event()
    with PhaseLog(lambda _: went.set()) as phases:
        time.sleep(0.01)
        phases.say(Log("error", "last words"))
        assert went.wait(5)


def test_a_reader_that_does_not_read_holds_no_callback_up_and_loses_only_steps():
    sent, may_go = [], threading.Event()

    def send(message):
        may_go.wait()
        sent.append(message)

    with PhaseLog(send) as phases:
        monitor = monitor_for(trt, phases, threading.Event(), threading.Event())
        monitor.phase_start("p", None, 5)
        for step in range(2 * MOST_WAITING):
            monitor.step_complete("p", step)
        monitor.phase_start("q", "p", 5)
        monitor.phase_finish("q")
        assert len(phases._calls) <= MOST_WAITING + 3
        may_go.set()
    assert [type(m) for m in sent if not isinstance(m, PhaseStep)] == [PhaseStarted, PhaseStarted, PhaseFinished]


def test_a_broken_pipe_is_kept_as_an_error_and_is_no_cancel():
    def send(_):
        raise BrokenPipeError

    stop, refused = threading.Event(), threading.Event()
    with PhaseLog(send) as phases:
        monitor = monitor_for(trt, phases, stop, refused)
        monitor.phase_start("p", None, 5)
        assert monitor.step_complete("p", 1) is True
    assert isinstance(phases.error, BrokenPipeError)
    stop.set()
    assert monitor.step_complete("p", 2) is False
    assert refused.is_set()


def test_callbacks_from_many_threads_are_all_told_once():
    def calls(m):
        def work(n):
            for i in range(50):
                m.phase_start(f"{n}.{i}", None, 1)
                m.step_complete(f"{n}.{i}", 0)
                m.phase_finish(f"{n}.{i}")

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    sent = _sent(calls)
    started = [m.id for m in sent if isinstance(m, PhaseStarted)]
    assert started == list(range(1, 401))
    assert sorted(m.id for m in sent if isinstance(m, PhaseFinished)) == started


_names = st.sampled_from(["a", "b", "c"])
_calls = st.lists(
    st.one_of(
        st.tuples(st.just("phase_start"), _names, st.none() | _names, st.integers(-1, 3)),
        st.tuples(st.just("step_complete"), _names, st.integers(-1, 3)),
        st.tuples(st.just("phase_finish"), _names),
    ),
    max_size=30,
)


@settings(max_examples=50, deadline=None)
@given(_calls)
def test_whatever_the_builder_calls_ids_rise_and_only_live_phases_move(calls):
    sent = _sent(lambda m: [getattr(m, name)(*arguments) for name, *arguments in calls])
    live: set[int] = set()
    started = 0
    for message in sent:
        match message:
            case PhaseStarted():
                started += 1
                assert message.id == started
                assert message.parent is None or message.parent in live
                assert message.steps is None or message.steps > 0
                live.add(message.id)
            case PhaseStep():
                assert message.id in live
            case PhaseFinished():
                live.remove(message.id)
    assert started == sum(name == "phase_start" for name, *_ in calls)
