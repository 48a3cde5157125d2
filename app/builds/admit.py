"""How much may wait: builds in the queue, and requests of one token."""

from app.builds.parts import Caller, Parts
from app.db import builds, requests
from app.db.builds import BuildRow
from app.db.requests import RequestRow
from app.db.session import Tx, in_turn
from app.errors import Refused

QUEUE_AGAIN = 30  # seconds until a full queue is worth another try; builds take seconds to minutes
TOKEN_AGAIN = 5


def admit(tx: Tx, parts: Parts, caller: Caller, request: RequestRow, build: BuildRow | None) -> None:
    """Refuse what `request` on `build`, decided and not yet committed, would add too much. Raises `Refused`: too_many.

    What others decide at the same moment comes before or after: each of the two counts is made in turn, to the commit.
    Joins and answers from what is there add no build, so a full queue still gives them; what is answered at once waits
    for nothing and counts nowhere.
    """
    if request.state != "waiting" or not caller.bounded:
        return
    if build and build.state == "queued" and build.requests == 1:  # ours alone, so it came with this request
        limit = parts.settings.max_queue
        in_turn(tx, "queue")
        if builds.queued(tx) > limit:
            raise Refused(
                "too_many", f"{limit} builds are queued, the most there may be (TRTFORGE_MAX_QUEUE).",
                retry_after=QUEUE_AGAIN, limit=limit,
            )  # fmt: skip
    if not caller.anonymous:  # without tokens nobody is told apart
        most = parts.settings.max_requests_per_token
        in_turn(tx, f"caller {caller.name}")
        if requests.waiting_of(tx, caller.name) > most:
            raise Refused(
                "too_many", f"{most} requests of this token wait, the most there may be (TRTFORGE_MAX_REQUESTS_PER_TOKEN).",
                retry_after=TOKEN_AGAIN, limit=most,
            )  # fmt: skip
