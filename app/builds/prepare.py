"""Stage prepare: a folder of its own for the child, with all that it is told to use."""

from dataclasses import dataclass, replace
from pathlib import Path

from app.builds.ending import failure
from app.builds.history import history_of
from app.builds.layout import lay_out
from app.builds.native_log import NativeLog
from app.builds.order import BaseGone, order_for
from app.builds.parts import Parts
from app.builds.plugins import PluginUnusable
from app.builds.room import check_build
from app.db import models
from app.db.builds import BuildRow
from app.domain.estimate import History
from app.errors import StoreFull, StoreUnusable
from app.worker.messages import BuildRequest, RefitRequest
from trtforge.contract.builds import Failure


class Unprepared(Exception):
    """There is nothing that a child could be told."""

    def __init__(self, why: Failure) -> None:
        super().__init__(why.message)
        self.failure = why


@dataclass(frozen=True)
class Prepared:
    folder: Path  # to be discarded by who asked
    words: NativeLog
    history: History | None
    request: BuildRequest | RefitRequest


def prepare(parts: Parts, row: BuildRow) -> Prepared:
    """Lay out what the build of `row` needs. Raises `Unprepared`; then nothing of it is left."""
    try:
        return _prepare(parts, row)
    except (StoreFull, StoreUnusable, FileNotFoundError) as error:
        why = failure("publish_failed", f"The store cannot take a build: {error}", stage="prepare")
        raise Unprepared(why) from error
    except BaseGone as gone:
        raise Unprepared(failure("engine_missing", stage="prepare", engine_key=str(gone))) from gone
    except PluginUnusable as unusable:
        why = failure("plugin_unusable", str(unusable), stage="prepare", plugin=unusable.name)
        raise Unprepared(why) from unusable


def _prepare(parts: Parts, row: BuildRow) -> Prepared:
    store, settings = parts.store, parts.settings
    store.probe()  # before the work, not after it
    with parts.database.read() as tx:
        model = models.find(tx, row.model)
    assert model is not None  # a live build refers to it
    check_build(parts, row.id, model.size)
    folder = store.scratch(row.id)
    try:
        lay_out(store, model, folder)
        request = order_for(row, settings, store, folder)
        plugins = parts.plugins.lay_out(row.spec_effective.get("plugins"), folder)
    except BaseException:
        store.discard(folder)
        raise
    folders = (folder, settings.data_dir.resolve(), settings.data_dir)
    words = NativeLog(store, row.id, row.attempt, folders, settings.max_log_bytes)
    with parts.database.read() as tx:
        return Prepared(folder, words, history_of(tx, row), replace(request, plugins=plugins))
