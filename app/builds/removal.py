"""Remove an engine, so that a crash at any instant leaves a whole engine or none.

before 1  the engine is whole
1 → 2     the index has no row: nothing is served; the manifest would bring it back when the index is made anew
2 → 3     no manifest either: the plan has its name and nothing points at it
after 3   gone, unless another engine has the same bytes

All of it happens under the lock of the engine key: no build of the key runs or publishes meanwhile. Another key's build
may publish the very same bytes at any time. It says so in its stage before it puts them and until its row is there, so
the plan is set aside first and then looked for: by a row that names it, or by any build in stage publish, it is put back.
Who downloads the plan has it open and keeps it.
"""

from app.builds.parts import Parts
from app.db import builds, engines, retention
from app.db.retention import EngineUse
from app.errors import Refused
from app.worker.locks import try_lock


def remove(parts: Parts, engine_key: str) -> None:
    """Remove an engine and, when no other has them, its bytes.

    Raises `Refused`: not_found, engine_pinned, or engine_busy while its key is being built or published.
    """
    lock = try_lock(parts.store.key_lock(engine_key), {"removal": engine_key})
    if lock is None:
        raise Refused("engine_busy", retry_after=1)
    with lock:
        with parts.database.write() as tx:
            engine = engines.find(tx, engine_key)
            if engine is None:
                raise Refused("not_found", f"No engine {engine_key}.")
            if not engines.remove_unpinned(tx, engine_key):  # 1
                raise Refused("engine_pinned")
        parts.store.remove_manifest(engine_key)  # 2
        remove_bytes(parts, engine.plan.digest)  # 3


def remove_unused(parts: Parts, engine: EngineUse) -> bool:
    """Do the same with an engine that may go, if nobody came to use it since it was seen; False: it stays."""
    lock = try_lock(parts.store.key_lock(engine.engine_key), {"removal": engine.engine_key})
    if lock is None:
        return False
    with lock:
        with parts.database.write() as tx:
            if engine.plan_digest in parts.sending.now() or not retention.remove_unused(tx, engine):  # 1
                return False
        parts.store.remove_manifest(engine.engine_key)  # 2
        remove_bytes(parts, engine.plan_digest)  # 3
    return True


def remove_bytes(parts: Parts, digest: str) -> bool:
    """Remove a plan that no engine has; False: one has it, or may be about to."""
    if _is_wanted(parts, digest):
        return False
    aside = parts.store.set_plan_aside(digest)
    if aside is None:
        return False
    if _is_wanted(parts, digest):
        parts.store.put_plan_back(digest, aside)
        return False
    parts.store.discard(aside.parent)
    return True


def _is_wanted(parts: Parts, digest: str) -> bool:
    """In this order: a build that publishes leaves its stage in the transaction that adds its row."""
    with parts.database.read() as tx:
        if any(build.stage == "publish" for build in builds.running(tx)):
            return True
    with parts.database.read() as tx:
        return engines.plan(tx, digest) is not None
