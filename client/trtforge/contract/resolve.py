"""Which engine a machine can take, and why each other one was refused."""

from typing import Any, Literal

from trtforge.contract.base import Asked, Digest, Wire
from trtforge.contract.builds import Nearest
from trtforge.contract.engines import EngineSummary
from trtforge.contract.spec import BuildSpec
from trtforge.contract.target import TargetSelector

# From strict to loose; each allows all that the one before it does.
Policy = Literal["exact", "same_driver_branch", "same_compute_capability", "portable"]


class Resolve(Asked):
    """Body of `POST /v1/engines/resolve`. `target`: the machine that asks; what it leaves out it does not know.

    Without a `spec` any engine of the model will do.
    """

    model: Digest
    spec: BuildSpec | None = None
    target: TargetSelector = TargetSelector()
    policy: Policy = "exact"


class Objection(Wire):
    """One field that speaks against an engine; `needs` is the strictest policy that overlooks it, None: none does."""

    field: str
    have: Any
    asked: Any
    needs: Policy | None
    why: str


class Candidate(Wire):
    """An engine of the model. `needs`: the strictest policy that takes it, None: none does."""

    engine_key: Digest
    taken: bool
    needs: Policy | None
    objections: tuple[Objection, ...]


class Resolved(Wire):
    """Answer of `POST /v1/engines/resolve`: the best engine, then all that were looked at, best first."""

    engine: EngineSummary
    policy: Policy  # the strictest that takes it
    nearest: Nearest  # the same engine, with what differs from what was asked
    candidates: tuple[Candidate, ...]
