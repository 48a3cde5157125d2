"""A builder that SIGKILL does not end: its build ends all the same, its device and its key stay taken until it is gone."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

import psutil

from app.builds import stopping
from app.builds.submit import submit
from app.builds.supervise import Supervisor
from app.builds.upload import Uploads
from app.db.builds import BuildRow
from app.worker.locks import try_lock
from tests.builds.traced import held
from tests.scene import ANYONE, Scene, opened
from tests.system.api import digest_of
from tests.system.models import SLOW, relus
from trtforge.contract.builds import Submit

SOON = 0.2  # seconds after SIGKILL
LONG = 20.0  # seconds this may take on a busy machine


def run(folder: Path, test: Callable[[Scene, Supervisor], Coroutine[Any, Any, None]]) -> None:
    """Run `test` beside a supervisor with one slot, and end that."""
    url = f"sqlite:///{folder / 'trtforge.db'}"
    with opened(url, folder, slots=1, cancel_grace_s=0.1, drain_s=30) as scene:

        async def both() -> None:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(8))
            scene.parts.bus.bind(asyncio.get_running_loop())
            supervisor = Supervisor(scene.parts, scene.worker, scene.target, SOON)
            supervisor.start()
            try:
                await test(scene, supervisor)
            finally:
                await supervisor.drain()

        asyncio.run(both())


async def ask(scene: Scene, content: bytes) -> str:
    async def body() -> AsyncIterator[bytes]:
        yield content

    model, _ = await Uploads(scene.parts).receive(digest_of(content), body(), None)
    answer = submit(scene.parts, Submit(model=model.digest), ANYONE, None, b"")
    assert answer.build
    return answer.build.id


async def until(scene: Scene, build_id: str, holds: Callable[[BuildRow], object]) -> BuildRow:
    end = monotonic() + LONG
    while not holds(row := scene.build(build_id)):
        assert monotonic() < end, row
        await asyncio.sleep(0.02)
    return row


async def silenced_builder(scene: Scene, build_id: str) -> psutil.Process:
    """Return the builder of a running build, which hears no request to stop any more."""
    await until(scene, build_id, lambda b: b.stage == "build")
    (builder,) = [p for p in psutil.Process().children() if "app.worker.child" in p.cmdline()]  # not a shared server
    builder.suspend()
    return builder


async def stopped_but_there(scene: Scene, build_id: str) -> BuildRow:
    stopping.cancel(scene.parts, build_id, ANYONE, None, force=False)
    return await until(scene, build_id, lambda b: b.state != "running")


def is_free(path: Path) -> bool:
    lock = try_lock(path, {})
    if lock:
        lock.release()
    return lock is not None


def test_its_build_ends_and_its_slot_waits_until_it_is_gone(tmp_path: Path) -> None:
    async def test(scene: Scene, supervisor: Supervisor) -> None:
        build_id = await ask(scene, relus(SLOW))
        builder = await silenced_builder(scene, build_id)
        with held(builder.pid) as process:
            row = await stopped_but_there(scene, build_id)
            assert (row.state, row.ended_by) == ("cancelled", "killed")
            assert builder.is_running()
            assert "cannot be killed" in (supervisor.broken or "")
            assert build_id in (supervisor.broken or "")
            device = scene.parts.settings.lock_dir / "cpu-0.lock"
            key = scene.parts.store.key_lock(row.engine_key)
            assert (is_free(device), is_free(key)) == (False, False)
            following = await ask(scene, relus())
            await asyncio.sleep(1.5)  # a slot looks every second
            assert scene.build(following).state == "queued"
            process.let_go()
            assert (await until(scene, following, lambda b: b.state not in ("queued", "running"))).state == "succeeded"
            assert supervisor.broken is None
            assert is_free(key)

    run(tmp_path, test)


def test_it_does_not_hold_up_the_end_of_the_service(tmp_path: Path) -> None:
    async def test(scene: Scene, supervisor: Supervisor) -> None:
        build_id = await ask(scene, relus(SLOW))
        builder = await silenced_builder(scene, build_id)
        with held(builder.pid):
            await stopped_but_there(scene, build_id)
            began = monotonic()
            await supervisor.drain()
            assert monotonic() - began < 25  # drain_s, which a build that runs would get, is 30
            assert builder.is_running()
        builder.wait(LONG)

    run(tmp_path, test)
