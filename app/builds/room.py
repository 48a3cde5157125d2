"""Is there room? Free disk and the quota, less what the builds that run now may still write."""

from app.builds.parts import Parts
from app.db import retention
from app.db.session import Tx
from app.errors import StoreFull

GC = "gc"  # topic: somebody needed room that was not there
BESIDE = 1 << 20  # bytes of a plan beside its weights: what the runtime needs; few are larger than their model by more


def lacks(parts: Parts, size: int, here: int = 0, reserved: int = 0) -> str | None:
    """Say why there is no room for `size` bytes, and let room be made; None: there is.

    `here` of them are on the disk already, `reserved` more are for others. Looks at the disk: call it from a thread.
    """
    settings, store = parts.settings, parts.store
    free = store.free_bytes() - settings.min_free_bytes - reserved
    why = None
    if free < size - here:
        why = f"{size - here} bytes are needed and {max(free, 0)} are free (TRTFORGE_MIN_FREE_BYTES keeps some)."
    elif settings.max_store_bytes is not None:
        left = settings.max_store_bytes - store.used_bytes(fresh=False) - reserved
        if left < size:
            why = f"{size} bytes are needed and {max(left, 0)} are left (TRTFORGE_MAX_STORE_BYTES)."
    if why and size + reserved <= (settings.max_store_bytes or size + reserved):  # nothing goes for what never fits
        parts.wanted.ask(size + reserved)
        parts.bus.notify(GC)
    return why


def lacks_for_build(tx: Tx, parts: Parts, model_size: int, build_id: str | None = None) -> str | None:
    """The same for the plan of a build, beside what the running builds may write; `build_id` is not one of them.

    A plan holds the weights, as the model does.
    """
    reserved = sum(size + BESIDE for size in retention.expected_bytes(tx, build_id))
    return lacks(parts, model_size + BESIDE, reserved=reserved)


def check_build(parts: Parts, build_id: str, model_size: int) -> None:
    """Raise `StoreFull` unless a build that was claimed has room beside the others."""
    with parts.database.read() as tx:
        why = lacks_for_build(tx, parts, model_size, build_id)
    if why:
        raise StoreFull(why)
