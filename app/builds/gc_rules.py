"""What may go, and why: one function for each kind of thing, in the order in which they go.

Nothing that is pinned, named, asked for by a live build, being sent, or made or fetched a moment ago is ever on a list.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import TypeVar

from app.builds.model_removal import remove_files, remove_models, unused_files
from app.builds.parts import Parts
from app.builds.protected import protected
from app.builds.removal import remove_bytes, remove_unused
from app.db import retention
from app.db.retention import EngineUse, ModelUse
from app.domain.days import age
from app.worker.locks import try_lock
from trtforge.contract.keeping import Kind, Removal

MOST = 10_000  # things in one run: the next one goes on
AT_ONCE = 200  # rows in one transaction: others write in between
RECENT = timedelta(minutes=5)  # downloads are noted once a minute, and who asked for an engine is about to fetch it
SETTLED = timedelta(hours=1)  # a model whose client is about to submit, a plan whose publish waits for a disk
HEADROOM = 0.1  # of the quota is made free, so that not every upload has to wait for a run
KEPT_KEYS = timedelta(hours=24)

T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """Things that go together. `remove` does it and says whether they went, or the ids of those that did."""

    items: tuple[Removal, ...]
    remove: Callable[[], bool | set[str]]


def batches(found: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(found)
    while some := list(islice(rest, AT_ONCE)):
        yield some


class Look:
    """One look at everything: what is used now, what has to go for the quota, how much one run may still do."""

    def __init__(self, parts: Parts, now: datetime, used: int, wanted: int) -> None:
        self.parts, self.now, self.used, self._wanted = parts, now, used, wanted
        self.left = MOST
        most = parts.settings.max_store_bytes
        goal = None if most is None else most - max(int(HEADROOM * most), wanted)
        self.excess = 0 if goal is None or most is None or not self._is_due(most) else used - max(goal, 0)

    def _is_due(self, most: int) -> bool:
        """Only near the quota, or when somebody found no room; then enough goes for some time."""
        return self.used > (1 - HEADROOM / 2) * most or self._wanted > 0

    def before(self, age_s: float) -> datetime:
        return self.now - timedelta(seconds=age_s)


def steps(look: Look) -> Iterator[Step]:
    """Everything that may go, at most `MOST` things; each kind is looked at when its turn comes."""
    rules = (_keys, _logs, _requests, _builds, _files, _plans, _signatures, _models, _engines)
    for rule in rules:
        for step in rule(look):
            if look.left <= 0:
                return
            look.left -= len(step.items)
            yield step


# ---- engines and their bytes


def _engines(look: Look) -> Iterator[Step]:
    settings = look.parts.settings
    if settings.engine_max_age_s is None and settings.keep_engines is None and look.excess <= 0:
        return
    with look.parts.database.read() as tx:
        found, pinned = retention.unpinned(tx), retention.pinned_plans(tx)
    holders = Counter(one.plan_digest for one in found)
    holders.update(pinned)
    kept = protected(look.parts, found, look.now - RECENT)
    reasons = _reasons(look, found)
    for one in found:
        if one.engine_key in kept:
            continue
        why = reasons.get(one.engine_key) or _for_quota(
            look, f"fetched least recently, {age(look.now, one.used_at)} ago"
        )
        if why is None:
            continue
        holders[one.plan_digest] -= 1
        freed = 0 if holders[one.plan_digest] else one.plan_size
        look.excess -= freed
        item = Removal(kind="engine", id=one.engine_key, bytes=freed, why=why)
        yield Step((item,), partial(remove_unused, look.parts, one))


def _reasons(look: Look, found: Sequence[EngineUse]) -> dict[str, str]:
    """Why engines go whatever the quota says, by key."""
    settings = look.parts.settings
    reasons: dict[str, str] = {}
    if (keep := settings.keep_engines) is not None:
        groups: dict[tuple[str, str], list[EngineUse]] = {}
        for one in found:
            groups.setdefault((one.model, one.target), []).append(one)
        for group in groups.values():
            newest = sorted(group, key=lambda one: (one.created_at, one.engine_key), reverse=True)
            why = f"not among the newest {keep} of its model and target (TRTFORGE_KEEP_ENGINES)"
            reasons |= {one.engine_key: why for one in newest[keep:]}
    if (most := settings.engine_max_age_s) is not None:
        for one in found:
            if one.used_at < look.before(most):
                why = f"not fetched for {age(look.now, one.used_at)} (TRTFORGE_ENGINE_MAX_AGE_S)"
                reasons.setdefault(one.engine_key, why)
    return reasons


def _for_quota(look: Look, why: str) -> str | None:
    if look.excess <= 0:
        return None
    return f"{why}; the store holds {look.used} bytes (TRTFORGE_MAX_STORE_BYTES)"


def _plans(look: Look) -> Iterator[Step]:
    """Plans that no engine has: left by a crash, or by an engine that was damaged."""
    store, settled = look.parts.store, (look.now - SETTLED).timestamp()
    old = {one.digest: one.size for one in store.stored_plans() if one.modified < settled}
    with look.parts.database.read() as tx:
        unknown = old.keys() - retention.indexed_plans(tx, old)
        unindexed = set(store.manifest_keys()) if unknown else set()
        unindexed -= retention.indexed_keys(tx, unindexed)
    named = {found.plan.digest for key in unindexed if (found := store.manifest(key))}
    for digest in sorted(unknown - named):
        look.excess -= old[digest]
        item = Removal(kind="plan", id=digest, bytes=old[digest], why="no engine has it")
        yield Step((item,), partial(remove_bytes, look.parts, digest))


def _signatures(look: Look) -> Iterator[Step]:
    """Signatures without a manifest: a kill came between the two."""
    store = look.parts.store
    signed = set(store.signature_keys())
    for key in sorted(signed - set(store.manifest_keys())) if signed else ():
        item = Removal(kind="signature", id=key, bytes=len(store.signature(key) or b""), why="it has no manifest")
        yield Step((item,), partial(_unsign, look, key))


def _unsign(look: Look, key: str) -> bool:
    """Under the key's lock: a publish writes the signature first."""
    store = look.parts.store
    lock = try_lock(store.key_lock(key), {"gc": key})
    if lock is None:
        return False
    with lock:
        if store.manifest(key) is None and not store.damaged(key):
            store.remove_signature(key)
            return True
    return False


# ---- models and their files


def _models(look: Look) -> Iterator[Step]:
    settings = look.parts.settings
    aged = settings.model_max_age_s
    if aged is None and look.excess <= 0:
        return
    with look.parts.database.read() as tx:
        named = {want.model for want in retention.wants(tx)}
        found = [one for one in retention.unused_models(tx, look.now - SETTLED, look.left) if one.digest not in named]
        holders = Counter(retention.files_in_use(tx)) if found else Counter[str]()
    going: list[tuple[ModelUse, Removal]] = []
    for one in found:
        why = None
        if aged is not None and one.used_at < look.before(aged):
            why = f"nothing refers to it, not used for {age(look.now, one.used_at)} (TRTFORGE_MODEL_MAX_AGE_S)"
        why = why or _for_quota(look, "nothing refers to it")
        if why:
            freed = _freed(one, holders)
            look.excess -= freed
            going.append((one, Removal(kind="model", id=one.digest, bytes=freed, why=why)))
    for some in batches(going):
        yield Step(tuple(item for _, item in some), partial(remove_models, look.parts, [one for one, _ in some]))


def _freed(model: ModelUse, holders: Counter[str]) -> int:
    holders.subtract(file.digest for file in model.files)
    return sum({file.digest: file.size for file in model.files if not holders[file.digest]}.values())


def _files(look: Look) -> Iterator[Step]:
    why = "no model has it (TRTFORGE_FILE_MAX_AGE_S)"
    for some in batches(unused_files(look.parts, look.before(look.parts.settings.file_max_age_s).timestamp())):
        look.excess -= sum(one.size for one in some)
        items = tuple(Removal(kind="file", id=one.digest, bytes=one.size, why=why) for one in some)
        yield Step(items, partial(remove_files, look.parts, [one.digest for one in some]))


# ---- what is left of builds and requests


def _keys(look: Look) -> Iterator[Step]:
    before = look.now - KEPT_KEYS
    with look.parts.database.read() as tx:
        count = retention.old_keys(tx, before)

    def remove() -> bool:
        with look.parts.database.write() as tx:
            retention.forget_keys(tx, before)
        return True

    if count:
        yield Step((Removal(kind="idempotency_keys", id=str(count), bytes=0, why="older than a day"),), remove)


def _logs(look: Look) -> Iterator[Step]:
    before, store = look.before(look.parts.settings.log_max_age_s), look.parts.store
    why = "the build ended long ago (TRTFORGE_LOG_MAX_AGE_S)"
    with look.parts.database.read() as tx:
        old = iter(retention.old_logs(tx, before, look.left))
    while some := list(islice(old, AT_ONCE)):
        items = [Removal(kind="events", id=build, bytes=size, why=why) for build, size in some if size]
        logs = {build: size for build, _ in some if (size := store.log_size(build))}
        items += [Removal(kind="log", id=build, bytes=size, why=why) for build, size in logs.items()]
        yield Step(tuple(items), partial(_trim, look, [build for build, _ in some], list(logs)))


def _trim(look: Look, builds: Sequence[str], logs: Sequence[str]) -> bool:
    for build in logs:
        look.parts.store.remove_log(build)
    with look.parts.database.write() as tx:
        retention.trim(tx, builds, look.now)
    return True


def _requests(look: Look) -> Iterator[Step]:
    with look.parts.database.read() as tx:
        old = iter(retention.old_requests(tx, look.before(look.parts.settings.build_max_age_s), look.left))

    def remove(ids: Sequence[str]) -> bool:
        with look.parts.database.write() as tx:
            retention.remove_requests(tx, ids)
        return True

    yield from _forgotten("request", old, remove)


def _builds(look: Look) -> Iterator[Step]:
    before = look.before(look.parts.settings.build_max_age_s)
    with look.parts.database.read() as tx:
        old = iter(retention.old_builds(tx, before, look.left))

    def remove(ids: Sequence[str]) -> bool:
        for build in ids:
            look.parts.store.remove_log(build)
        with look.parts.database.write() as tx:
            retention.remove_builds(tx, ids)
        return True

    yield from _forgotten("build", old, remove)


def _forgotten(kind: Kind, old: Iterator[str], remove: Callable[[Sequence[str]], bool]) -> Iterator[Step]:
    why = "it ended long ago (TRTFORGE_BUILD_MAX_AGE_S)"
    while some := list(islice(old, AT_ONCE)):
        yield Step(tuple(Removal(kind=kind, id=one, bytes=0, why=why) for one in some), partial(remove, some))
