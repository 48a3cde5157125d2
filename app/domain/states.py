"""States of a build and the only ways between them."""

from trtforge.contract.builds import State

LIVE: frozenset[State] = frozenset({"queued", "running"})

TRANSITIONS: dict[State, frozenset[State]] = {
    "queued": frozenset({"running", "failed", "cancelled"}),
    "running": frozenset({"succeeded", "failed", "cancelled", "queued"}),  # back to queued: worker lost or drained
    "succeeded": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}

MAX_LOSSES = 3  # the third lost worker ends a build: a build that kills its workers must not go round for ever


def allowed(from_: State, to: State) -> bool:
    return to in TRANSITIONS[from_]
