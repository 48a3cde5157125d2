"""How a slot takes a build: device lock, key lock, then the row; never waiting for one of them."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from app.builds.parts import Parts
from app.db import builds, requests
from app.db.builds import BuildRow
from app.worker.devices import Device, processors
from app.worker.locks import Lock, try_lock
from trtforge.contract.builds import WaitingFor
from trtforge.contract.events import StageEntered

CANDIDATES = 16  # builds tried per look, so that one whose key is locked does not block the rest


@dataclass(frozen=True)
class Claimed:
    """A build, and the locks that stay held until it is concluded."""

    row: BuildRow
    locks: tuple[Lock, Lock]

    def release(self) -> None:
        for lock in self.locks:
            lock.release()


class Claims:
    """Takes builds for the slots of one worker."""

    def __init__(self, parts: Parts, worker: str, target_id: str, device: Device | None = None) -> None:
        self._device = device or processors(parts.settings.slots)
        self._parts, self._worker, self._target_id = parts, worker, target_id
        self._picking = threading.Lock()  # two slots of ours must not take each other's try for another process's

    def pick(self, draining: Callable[[], bool]) -> Claimed | None:
        """Take the best build whose locks are free; note what the others wait for. Raises `Busy`, `StoreUnusable`."""
        with self._picking:
            with self._parts.database.read() as tx:
                candidates = builds.queue(tx, self._target_id, CANDIDATES)
            for build in candidates:
                if draining():
                    return None
                holder = {"build": build.id, "attempt": build.attempt + 1}
                device = None if self._unfit() else self._free_device(holder)
                if device is None:
                    self._note(build, "device")
                    return None
                if claimed := self._with_device(build, device, holder):
                    return claimed
        return None

    def _unfit(self) -> bool:
        """A GPU in trouble fails every build; one that others compute on is left alone where that was asked."""
        waits = self._parts.settings.require_idle_gpu == "wait"
        return self._device.trouble is not None or (waits and self._device.strangers() != [])

    def _free_device(self, holder: dict[str, object]) -> Lock | None:
        """Any slot takes any lock of the device: only when other processes hold them all does a build wait for one."""
        folder = self._parts.settings.lock_dir
        tries = (try_lock(folder / name, holder) for name in self._device.locks)
        return next((lock for lock in tries if lock), None)

    def _with_device(self, build: BuildRow, device: Lock, holder: dict[str, object]) -> Claimed | None:
        claimed = None
        try:
            key = try_lock(self._parts.store.key_lock(build.engine_key), holder)
            if key is None:
                self._note(build, "engine_lock")
                return None
            try:
                row = self._claim(build)
                claimed = Claimed(row, (key, device)) if row else None
            finally:
                if claimed is None:
                    key.release()
        finally:
            if claimed is None:
                device.release()
        return claimed

    def _note(self, build: BuildRow, waiting_for: WaitingFor) -> None:
        if build.waiting_for == waiting_for:
            return
        with self._parts.database.write() as tx:
            changed = builds.wait(tx, build.id, waiting_for, self._parts.now())
        if changed:
            self._parts.bus.notify(build.id)

    def _claim(self, build: BuildRow) -> BuildRow | None:
        at = self._parts.now()
        until = at + timedelta(seconds=self._parts.settings.lease_s)
        with self._parts.database.write() as tx:
            row = builds.claim(tx, build.id, self._worker, at, until)
            if row is None:
                return None
            builds.append(tx, row.id, row.attempt, [StageEntered(at=at, stage="prepare")], stage="prepare")
            requests.set_deadlines(tx, row.id, "run_timeout_s", at)
            claimed = builds.find(tx, row.id)
        self._parts.bus.notify(build.id)
        return claimed
