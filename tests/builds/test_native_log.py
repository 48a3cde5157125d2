"""The native log keeps whole clean lines, up to a limit, in memory and on disk."""

from pathlib import Path

from app.builds.native_log import NativeLog
from tests.scene import Scene

HERE = Path("/srv/store/staging/wrk_1/bld_1")


def _log(scene: Scene, limit: int = 1000, attempt: int = 1) -> NativeLog:
    return NativeLog(scene.parts.store, "bld_1", attempt, (HERE,), limit)


def _kept(scene: Scene) -> list[str]:
    return (scene.parts.store.log("bld_1") or b"").decode().splitlines()


def test_lines_are_put_together_and_paths_taken_out(small: Scene) -> None:
    log = _log(small)
    for chunk in (b"read", b"ing " + str(HERE).encode() + b"/model.onnx\nsec", b"ond\nno end"):
        log.write(chunk)
    log.flush()
    first, second, third = _kept(small)
    assert (first, third) == ("--- attempt 1", "second")
    assert second.startswith("reading ")
    assert "/srv" not in second
    assert not log.waiting
    log.finish()
    assert log.waiting
    log.flush()
    assert _kept(small)[-1] == "no end"


def test_it_stops_at_its_limit_and_says_so_once(small: Scene) -> None:
    log = _log(small, limit=100)
    for n in range(100):
        log.write(f"line number {n}\n".encode())
        log.flush()
    log.finish()
    log.flush()
    assert len(small.parts.store.log("bld_1") or b"") < 250
    assert sum("reached its limit" in line for line in _kept(small)) == 1
    assert _kept(small)[-1].startswith("--- the log ends here")
    assert (log.tail() or "").endswith("line number 99"), "what a crash said last is known all the same"


def test_the_limit_is_the_build_s_not_the_attempt_s(small: Scene) -> None:
    first = _log(small, limit=60)
    first.write(b"x" * 40 + b"\n")
    first.flush()
    second = _log(small, limit=60, attempt=2)
    second.write(b"y" * 40 + b"\nnever\n")
    second.flush()
    kept = _kept(small)
    assert kept[1] == "x" * 40
    assert kept[2] == "--- attempt 2"
    assert "never" not in kept


def test_a_line_without_end_takes_no_memory(small: Scene) -> None:
    log = _log(small)
    for _ in range(100):
        log.write(b"z" * 100_000)
    assert len(log._partial) <= 4096
    log.finish()
    log.flush()
    assert max(len(line) for line in _kept(small)) <= 4096


def test_odd_bytes_are_kept_readable(small: Scene) -> None:
    log = _log(small)
    log.write(b"caf\xe9 \xff\x00\x1b[31m\n")
    log.flush()
    assert _kept(small)[-1].startswith("caf\ufffd")


def test_the_tail_is_the_last_lines_that_say_something(small: Scene) -> None:
    log = _log(small)
    assert log.tail() is None
    log.write(b"".join(b"line %d\n\n" % n for n in range(100)))
    tail = (log.tail() or "").splitlines()
    assert tail[-1] == "line 99"
    assert len(tail) <= 20
    log.write(b"q" * 10_000 + b"\n")
    assert len(log.tail() or "") <= 2000
