"""The parent's side of a child, against real processes; a scripted one where ours cannot be told to misbehave."""

import asyncio
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
import uvloop

from app.worker.lines import MAX_LINE
from app.worker.messages import InspectRequest, Log, ProbeRequest, Stage
from app.worker.pipes import BURST, CHUNK, PACE
from app.worker.process import Child, Exit, ProtocolBroken
from tests.worker.models import run, script

PROBE = ProbeRequest("tensorrt_rtx")
SLEEP = "time.sleep(1000)"


def _silent(_: bytes) -> None:
    pass


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def _end(child: Child) -> Exit:
    child.kill()
    return await child.wait()


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
def test_messages_then_the_exit_code(tmp_path, loop):
    async def main():
        body = 'line = sys.stdin.readline(); print(line); out(b\'{"type":"stage","stage":"parse"}\\n\'); sys.exit(3)'
        output = bytearray()
        child = await Child.spawn(PROBE, tmp_path, output.extend, argv=script(body))
        messages = [message async for message in child.messages()]
        return messages, await child.wait(), await child.wait(), bytes(output), child.usage()

    messages, ended, again, output, usage = loop(main())
    assert messages == [Stage("parse")]
    assert (ended.code, ended.signal) == (3, None)
    assert again == ended
    assert b'"kind":"probe"' in output
    assert usage is None


@pytest.mark.parametrize(
    "line",
    [
        b"hello\n",
        b'{"type":"stage"}\n',
        b'{"type":"nonsense"}\n',
        b'{"type":"stage","stage":1}\n',
        b"\xff\xfe\n",
        b"[" * 200_000 + b"\n",
        b'{"type":"phase_finished","id":1,"at":NaN,"elapsed_s":1.0}\n',
        b"x" * (MAX_LINE + 1),
        b"x" * MAX_LINE * 3 + b"\n",
    ],
    ids=lambda line: repr(line[:20]),
)
def test_what_is_no_message_breaks_the_protocol_and_the_child_can_be_killed(tmp_path, line):
    (tmp_path / "line").write_bytes(line)

    async def main():
        body = f"left = open('line', 'rb').read()\nwhile left: left = left[out(left):]\n{SLEEP}"
        child = await Child.spawn(PROBE, tmp_path, _silent, argv=script(body))
        with pytest.raises(ProtocolBroken):
            async for _ in child.messages():
                pass
        assert child.usage()
        return await _end(child)

    assert run(main()).signal == "SIGKILL"


def test_a_line_that_was_cut_off_by_the_end_is_nothing(tmp_path):
    async def main():
        child = await Child.spawn(PROBE, tmp_path, _silent, argv=script('out(b\'{"type":"stage","sta\')'))
        return [m async for m in child.messages()], await child.wait()

    messages, ended = run(main())
    assert messages == []
    assert ended.code == 0


def test_a_child_that_closes_its_descriptor_and_sleeps_is_still_there_to_be_killed(tmp_path):
    async def main():
        child = await Child.spawn(PROBE, tmp_path, _silent, argv=script(f"os.close(fd)\n{SLEEP}"))
        assert [m async for m in child.messages()] == []
        assert not _gone(child.pid)
        return await _end(child)

    assert run(main()).signal == "SIGKILL"


def test_a_wait_that_is_given_up_changes_nothing(tmp_path):
    async def main():
        child = await Child.spawn(PROBE, tmp_path, _silent, argv=script(SLEEP))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(child.wait(), 0.05)
        assert not _gone(child.pid)
        return await _end(child)

    assert run(main()).signal == "SIGKILL"


def test_a_stopped_process_is_killed_all_the_same(tmp_path):
    async def main():
        child = await Child.spawn(PROBE, tmp_path, _silent, argv=script(SLEEP))
        os.kill(child.pid, signal.SIGSTOP)
        while psutil.Process(child.pid).status() != psutil.STATUS_STOPPED:
            await asyncio.sleep(0.01)
        return await _end(child)

    assert run(main()).signal == "SIGKILL"


_FORK = (
    'pid = subprocess.Popen(["sleep", "1000"], start_new_session={apart}, pass_fds=(fd,)).pid\nprint(pid, flush=True)\n'
)


async def _with_grandchild(folder: Path, body: str, apart: bool = False) -> tuple[Child, int]:
    said: asyncio.Queue[bytes] = asyncio.Queue()
    child = await Child.spawn(PROBE, folder, said.put_nowait, argv=script(_FORK.format(apart=apart) + body))
    return child, int(await said.get())


def test_what_the_leader_leaves_behind_in_its_group_is_gone_when_wait_returns(tmp_path):
    async def main():
        child, grandchild = await _with_grandchild(tmp_path, "sys.exit(7)")
        ended = await child.wait()
        return ended.code, _gone(grandchild), [m async for m in child.messages()]

    assert run(main()) == (7, True, [])


def test_kill_reaches_the_whole_group(tmp_path):
    async def main():
        child, grandchild = await _with_grandchild(tmp_path, SLEEP)
        used = child.usage()
        ended = await _end(child)
        child.kill()
        child.stop()
        assert used
        return ended.signal, _gone(grandchild), used.rss_bytes > 0

    assert run(main()) == ("SIGKILL", True, True)


def test_who_left_the_group_cannot_hold_wait_up(tmp_path):
    async def main():
        child, grandchild = await _with_grandchild(tmp_path, "sys.exit(0)", apart=True)
        try:
            return (await child.wait()).code, [m async for m in child.messages()]
        finally:
            os.kill(grandchild, signal.SIGKILL)

    assert run(main(), seconds=10) == (0, [])


def test_a_flood_of_output_is_paced_and_holds_nothing_else_up(tmp_path):
    async def main():
        got = 0

        def count(chunk: bytes) -> None:
            nonlocal got
            got += len(chunk)

        body = "import threading\n"
        body += "threading.Thread(target=lambda: [os.write(2, b'x' * 65536) for _ in iter(int, 1)]).start()\n"
        body += 'for _ in range(20): out(b\'{"type":"stage","stage":"parse"}\\n\'); time.sleep(0.05)\n'
        body += "os.close(fd)"
        started = time.monotonic()
        child = await Child.spawn(PROBE, tmp_path, count, argv=script(body))
        messages = [m async for m in child.messages()]
        seconds = time.monotonic() - started
        await _end(child)
        return len(messages), got, seconds

    messages, got, seconds = run(main())
    assert messages == 20
    assert BURST < got <= (seconds / PACE + 2) * (BURST + CHUNK)


def test_a_reader_that_pauses_bounds_what_is_kept_and_loses_nothing(tmp_path):
    count, size = 200, 50_000  # 10 MB

    async def main():
        body = (
            f'for i in range({count}): out(b\'{{"type":"log","level":"error","text":"%d%s"}}\\n\' % (i, b"x" * {size}))'
        )
        child = await Child.spawn(PROBE, tmp_path, _silent, argv=script(body))
        texts = []
        async for message in child.messages():
            await asyncio.sleep(0.002)
            assert isinstance(message, Log)
            texts.append(message.text)
            assert child._lines._kept <= 2 * MAX_LINE
        return texts, await child.wait()

    texts, ended = run(main())
    assert [text.rstrip("x") for text in texts] == [str(i) for i in range(count)]
    assert ended.code == 0


def test_wait_ends_though_nobody_reads_the_messages(tmp_path):
    async def main():
        body = 'while True: out(b\'{"type":"stage","stage":"parse"}\\n\' * 1000)'
        child = await Child.spawn(PROBE, tmp_path, _silent, argv=script(body))
        while child._lines._kept < MAX_LINE:
            await asyncio.sleep(0.01)
        return await _end(child)

    assert run(main()).signal == "SIGKILL"


def test_a_request_larger_than_a_pipe_arrives_and_one_that_is_not_read_blocks_nobody(tmp_path):
    request = InspectRequest("m" * 3_000_000, 1, {}, 60)

    async def main():
        printed = bytearray()
        reads = await Child.spawn(request, tmp_path, printed.extend, argv=script("print(len(sys.stdin.readline()))"))
        deaf = await Child.spawn(request, tmp_path, _silent, argv=script(SLEEP))
        deaf.stop()
        await reads.wait()
        await _end(deaf)
        return int(printed)

    assert run(main()) > 3_000_000


def test_stop_is_said_once_after_the_request(tmp_path):
    async def main():
        printed = bytearray()
        child = await Child.spawn(
            PROBE, tmp_path, printed.extend, argv=script("for line in sys.stdin: print(line, flush=True)")
        )
        child.stop()
        child.stop()
        while b"stop" not in printed:
            await asyncio.sleep(0.01)
        await _end(child)
        return printed.decode()

    assert run(main()).count("stop") == 1


def test_no_descriptor_and_no_process_is_left(tmp_path):
    async def one(body):
        child = await Child.spawn(PROBE, tmp_path, _silent, argv=script(body))
        await asyncio.sleep(0.1)
        await _end(child)

    async def main():
        before = psutil.Process().num_fds(), len(psutil.Process().children())
        for body in ("pass", SLEEP, f"os.close(fd); os.close(0); os.close(1); os.close(2); {SLEEP}"):
            await one(body)
        with pytest.raises(OSError):
            await Child.spawn(PROBE, tmp_path, _silent, argv=["/nonexistent"])
        return before, (psutil.Process().num_fds(), len(psutil.Process().children()))

    before, after = run(main())
    assert after == before


def test_a_loop_that_ends_takes_its_children_along(tmp_path):
    async def main():
        return (await Child.spawn(PROBE, tmp_path, _silent, argv=script(SLEEP))).pid

    pid = run(main())
    deadline = time.monotonic() + 10
    while not _gone(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
