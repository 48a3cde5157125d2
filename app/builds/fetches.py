"""Note that an engine is being fetched: retention lets go first what was fetched longest ago."""

from contextlib import suppress

from app.builds.parts import Parts
from app.db import engines
from app.errors import Busy

NOTED_EVERY_S = 60.0  # retention counts in hours, and each note waits for the disk


def note_fetch(parts: Parts, plan_digest: str) -> None:
    """Note it when it begins, so that others know; once a minute in each process. Blocks."""
    if parts.sending.is_due(plan_digest, NOTED_EVERY_S):
        with suppress(Busy), parts.database.write() as tx:  # the next one will be noted
            engines.fetched(tx, plan_digest, parts.now())
