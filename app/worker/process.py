"""A child process, seen from the supervisor. Knows nothing of any builder."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Annotated

import psutil
from pydantic import Field, TypeAdapter, ValidationError

from app.worker.environment import child_environment
from app.worker.lines import STOP, Request, request_line
from app.worker.messages import Message
from app.worker.pipes import Lines, PipeReader, ProtocolBroken

__all__ = ["Child", "Exit", "ProtocolBroken", "Usage"]

DRAIN = 1.0  # seconds that something outside the group may hold the pipes open after the group is gone
LOOK = 0.02  # seconds between looks whether the killed group is gone

_messages: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="type")])


@dataclass(frozen=True)
class Exit:
    """How a child ended: `code`, or the name of the `signal` that killed it; `seconds` since its start."""

    code: int | None
    signal: str | None
    seconds: float


@dataclass(frozen=True)
class Usage:
    """Of the whole process group: processor seconds so far, resident bytes now."""

    cpu_s: float
    rss_bytes: int


class Child:
    """One process in a group of its own, with a request on stdin, messages on its own descriptor, and log text.

    It is reaped as soon as it exits, whether anyone waits or not, and what is left of its group is killed then. All
    methods belong to the thread of the event loop, except `usage`, which may run in another.
    """

    def __init__(
        self, popen: subprocess.Popen[bytes], request: Request, said: int, on_output: Callable[[bytes], None]
    ) -> None:
        """Only for `spawn`. `said` is the reading end of the child's own descriptor."""
        assert popen.stdin
        assert popen.stdout
        self._started = monotonic()
        self._popen = popen
        self._reaped = False
        self._told = False
        self._seen: dict[int, psutil.Process] = {}
        self.pid = popen.pid
        self._orders = bytearray(request_line(request))
        self._stdin = os.dup(popen.stdin.fileno())
        self._lines = Lines(said)
        self._output = PipeReader(os.dup(popen.stdout.fileno()), _always(on_output))
        popen.stdin.close()
        popen.stdout.close()
        os.set_blocking(self._stdin, False)
        self._loop = asyncio.get_running_loop()
        self._writing = False
        self._write()
        self._end = self._loop.create_task(self._reap())

    @classmethod
    async def spawn(
        cls,
        request: Request,
        folder: Path,
        on_output: Callable[[bytes], None],
        argv: list[str] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> "Child":
        """Start a child in `folder` and hand it `request`. `on_output` gets its stdout and stderr in chunks.

        Call it on the event loop's own thread: the kernel ends the child with the *thread* that started it. `argv`
        replaces the command in tests; the number of the message descriptor is appended. `more` joins its environment.
        Raises `OSError`.
        """
        said, speaks = os.pipe2(os.O_CLOEXEC)
        command = argv or [sys.executable, "-P", "-s", "-m", "app.worker.child"]
        try:
            popen = subprocess.Popen(  # noqa: ASYNC220 (returns once the command is executed: milliseconds)
                [*command, str(speaks), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                cwd=folder,
                env={**child_environment(os.environ, folder), **(more or {})},
                pass_fds=(speaks,),
                start_new_session=True,
            )
        except BaseException:
            os.close(said)
            raise
        finally:
            os.close(speaks)
        return cls(popen, request, said, on_output)

    @property
    def pids(self) -> set[int]:
        """Members of the group when `usage` last looked."""
        return {self.pid, *self._seen}

    async def messages(self) -> AsyncIterator[Message]:
        """Yield what the child says until it closes its descriptor. Raises `ProtocolBroken`; the child lives on."""
        async for line in self._lines:
            yield _message(line)

    def stop(self) -> None:
        """Ask the builder to stop at its next callback or between stages. Says it once; safe to call always."""
        if not self._told:
            self._told = True
            self._orders += STOP
            self._write()

    def kill(self) -> None:
        """SIGKILL the whole process group. Safe to call always: nothing is sent once the number may be another's."""
        if not self._reaped:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def wait(self) -> Exit:
        """Return how the child ended, once its group is gone and its pipes are drained and closed. Safe to cancel."""
        return await asyncio.shield(self._end)

    def usage(self) -> Usage | None:
        """What the group uses, None when it is gone. Reads /proc: a millisecond per thousand processes of the host."""
        members = {} if self._reaped else {pid: self._seen.get(pid) for pid in _group(self.pid)}
        cpu, rss = 0.0, 0
        self._seen = {}
        for pid, known in members.items():
            with suppress(psutil.Error):
                process = known or psutil.Process(pid)
                with process.oneshot():
                    spent = process.cpu_times()
                    cpu += spent.user + spent.system + spent.children_user + spent.children_system
                    rss += process.memory_info().rss
                self._seen[pid] = process
        return Usage(cpu, rss) if self._seen else None

    def _write(self) -> None:
        """Hand over what the pipe takes now, the rest when it has room: a child that does not read holds nobody up."""
        try:
            while self._orders and self._stdin >= 0:
                del self._orders[: os.write(self._stdin, self._orders)]
        except BlockingIOError:
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._stdin, self._write)
            return
        except OSError:  # it closed its stdin or is gone; its exit tells
            self._orders.clear()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._stdin)

    async def _reap(self) -> Exit:
        try:
            return await self._reaped_whole()
        except asyncio.CancelledError:  # the loop ends; nobody will look after it any more
            self.kill()
            raise
        finally:
            self._close()

    async def _reaped_whole(self) -> Exit:
        await self._exited()
        seconds = monotonic() - self._started
        self.kill()  # the leader is not reaped yet, so the number is still this group's
        while any(_alive(pid) for pid in _group(self.pid) if pid != self.pid):  # noqa: ASYNC110 (strangers tell nobody)
            await asyncio.sleep(LOOK)
        self._reaped = True
        code = self._popen.wait()  # it has exited: returns at once
        self._lines.pipe.finish()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._output.closed.wait(), DRAIN)
        return Exit(None, _signal_name(-code), seconds) if code < 0 else Exit(code, None, seconds)

    def _close(self) -> None:
        self._orders.clear()
        self._write()
        os.close(self._stdin)
        self._stdin = -1
        self._lines.pipe.close()
        self._output.close()

    async def _exited(self) -> None:
        pidfd = os.pidfd_open(self.pid)
        exited = asyncio.Event()
        self._loop.add_reader(pidfd, exited.set)
        try:
            await exited.wait()
        finally:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)


def _message(line: bytes) -> Message:
    try:
        message = _messages.validate_json(line, strict=True)
    except ValidationError as error:
        raise ProtocolBroken(f"no message: {error.errors()[0]['msg']}: {line[:80]!r}") from error
    if not isfinite(getattr(message, "at", 0.0)) or not isfinite(getattr(message, "elapsed_s", 0.0)):
        raise ProtocolBroken(f"no time: {line[:80]!r}")
    return message


def _always(on_output: Callable[[bytes], None]) -> Callable[[bytes], bool]:
    def take(chunk: bytes) -> bool:
        if chunk:
            on_output(chunk)
        return True

    return take


def _group(leader: int) -> list[int]:
    return [pid for pid in psutil.pids() if _group_of(pid) == leader]


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def _alive(pid: int) -> bool:
    """A zombie holds nothing any more; whose it is will reap it."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
