"""Remove what may go, so that a crash at any instant loses nothing that is kept and strands nothing that is not.

engine    as `app.builds.removal` does it; between its row and its manifest, the next run indexes it again
model     row, inspection, files: after the row the next run indexes it again, after the inspection nothing refers to
          its files and they go like any other; a file that a model came to have meanwhile is put back
log       bytes before rows: a build without its log has an empty one, and its events go with the next run
build     log, then the row with its last event; requests before builds, since they point at them
plan      of no engine and no manifest: set aside, looked for, then removed

One process at a time removes, under a lock on the disk that all share; a killed one frees it. Each thing is looked at
again in the transaction that lets it go, so what was pinned, fetched or asked for since stays. Models and
manifests whose rows are missing are indexed and not removed: a database that was lost must not take the store with it.
"""

import structlog

from app.builds.bus import woken
from app.builds.gc_rules import Look, Step, steps
from app.builds.parts import Parts, in_thread
from app.builds.reindex import index_missing
from app.builds.room import GC
from app.errors import Busy, NotReady, Refused, StoreFull, StoreUnusable
from app.worker.locks import try_lock
from trtforge.contract.keeping import Collection, Removal

FIRST_AFTER = 60.0  # seconds from the start to the first run, so that a service that restarts often has some

log = structlog.get_logger()


def collect(parts: Parts, dry_run: bool) -> Collection:
    """Remove what may go, or only say it. Raises `Refused`: gc_running; `Busy`, `StoreUnusable` in the middle."""
    if dry_run:
        return _collect(parts, dry_run=True)
    lock = try_lock(parts.store.gc_lock(), {"gc": True})
    if lock is None:
        raise Refused("gc_running", retry_after=5)
    with lock:
        index_missing(parts)
        return _collect(parts, dry_run=False)


def _collect(parts: Parts, dry_run: bool) -> Collection:
    wanted = parts.wanted.now if dry_run else parts.wanted.take()  # what is asked for from here on is for the next run
    look = Look(parts, parts.now(), parts.store.used_bytes(), wanted)
    gone: list[Removal] = []
    for step in steps(look):
        went = step.items if dry_run else _removed(step)
        gone += went
    return Collection(
        dry_run=dry_run,
        items=tuple(gone),
        bytes=sum(item.bytes for item in gone),
        store_bytes=look.used,
        more=look.left <= 0,
    )


def _removed(step: Step) -> tuple[Removal, ...]:
    went = step.remove()
    items = step.items if went is True else tuple(item for item in step.items if went and item.id in went)
    for item in items:
        log.info("removed", kind=item.kind, id=item.id, bytes=item.bytes, why=item.why)
    return items


class Collector:
    """Runs now and then in the service, and soon after somebody found no room."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def run(self) -> None:
        interval = self._parts.settings.gc_interval_s
        if not interval:
            return
        pause = min(interval, FIRST_AFTER)
        with self._parts.bus.listen(GC) as wake:
            while True:
                await woken(wake, pause)
                more = await in_thread(self._once)
                pause = 0.0 if more else interval

    def _once(self) -> bool:
        """Collect; return whether there is more to do at once."""
        try:
            done = collect(self._parts, dry_run=False)
        except Refused:  # another process does it
            return False
        except (Busy, NotReady, StoreFull, StoreUnusable, OSError) as error:
            log.warning("gc_failed", reason=str(error))
            return False
        except Exception:  # what nobody thought of must not end the runs for good
            log.exception("gc_failed")
            return False
        if done.items:
            log.info("gc", items=len(done.items), bytes=done.bytes)
        return done.more and bool(done.items)
