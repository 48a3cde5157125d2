"""What keeps a store in order: what gc removes and why, and what a look at rows and bytes finds wrong."""

from typing import Literal

from trtforge.contract.base import Wire

Kind = Literal["engine", "plan", "signature", "model", "file", "log", "events", "request", "build", "idempotency_keys"]


class Removal(Wire):
    """One thing that goes. `bytes` on the disk or in the database that this frees; shared bytes count once, at the last."""

    kind: Kind
    id: str
    bytes: int
    why: str


class Collection(Wire):
    """What went, or would go. `more`: the limit of one run was reached, the next one goes on."""

    dry_run: bool
    items: tuple[Removal, ...]
    bytes: int
    store_bytes: int  # plans and files of models before it
    more: bool


class Fault(Wire):
    """One thing that is not as it should be. `fault`: missing, corrupt, orphan (bytes without a row) or unindexed."""

    kind: Literal["engine", "manifest", "plan", "model", "file", "inspection", "log"]
    id: str
    fault: Literal["missing", "corrupt", "orphan", "unindexed"]
    detail: str


class Verification(Wire):
    """`quick`: sizes were compared, not digests. `bytes` were read and hashed."""

    ok: bool
    quick: bool
    engines: int
    models: int
    bytes: int
    faults: tuple[Fault, ...]
