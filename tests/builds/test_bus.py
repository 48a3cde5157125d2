"""Wake-ups reach every listener of their topic, from any thread, and nobody else."""

import asyncio
import threading

from app.builds.bus import Bus, woken

SOON = 10.0  # seconds; nothing here takes that long unless a wake-up is lost


def test_a_wake_up_from_a_thread_reaches_all_listeners_of_its_topic_only() -> None:
    async def work() -> None:
        bus = Bus()
        bus.bind(asyncio.get_running_loop())
        with bus.listen("a") as one, bus.listen("a") as two, bus.listen("b") as other:
            thread = threading.Thread(target=bus.notify, args=("a",))
            thread.start()
            assert await woken(one, SOON)
            assert await woken(two, SOON)
            assert not other.is_set()
            assert not await woken(one, 0.01), "a wake-up counts once"
            thread.join()

    asyncio.run(work())


def test_a_wake_up_before_the_wait_is_not_lost() -> None:
    async def work() -> None:
        bus = Bus()
        bus.bind(asyncio.get_running_loop())
        with bus.listen("a") as one:
            bus.notify("a")
            bus.notify("a")
            await asyncio.sleep(0)
            assert await woken(one, SOON)

    asyncio.run(work())


def test_nothing_is_kept_of_who_has_left() -> None:
    async def work() -> None:
        bus = Bus()
        bus.bind(asyncio.get_running_loop())
        for n in range(100):
            with bus.listen(str(n)):
                pass
            bus.notify(str(n))
        await asyncio.sleep(0)
        assert not bus._listeners

    asyncio.run(work())


def test_nobody_listens_before_the_loop_and_after_it() -> None:
    bus = Bus()
    bus.notify("a")
    loop = asyncio.new_event_loop()
    bus.bind(loop)
    loop.close()
    bus.notify("a")
