"""Tickets: an address of one build's stream for a reader that can send no token, as a browser's EventSource.

An EventSource comes back to the same address after every cut. So a ticket must be used once within a minute, and then
works for as long as the build lives: whoever finds an unused one in a log is too late.
"""

import secrets
from datetime import timedelta

from app.builds.parts import Caller, Parts
from app.db import builds, tokens
from app.domain.tokens import digest_of
from app.errors import Refused
from trtforge.contract.tokens import Ticket

CONNECT = timedelta(seconds=60)
AFTER_END = timedelta(seconds=60)  # in which a reader that was cut off fetches the last event


def issue(parts: Parts, build_id: str, caller: Caller) -> Ticket:
    """Make a ticket for the stream of a build. Raises `Refused`: not_found."""
    text, now = secrets.token_urlsafe(32), parts.now()
    with parts.database.write() as tx:
        if builds.last_seq(tx, build_id) is None:
            raise Refused("not_found", f"No build {build_id}.")
        tokens.sweep_tickets(tx, now, now - AFTER_END)
        tokens.add_ticket(tx, digest_of(text), build_id, caller.name, now + CONNECT)
    return Ticket(ticket=text, url=f"/v1/builds/{build_id}/events?ticket={text}", connect_by=now + CONNECT)


def admit(parts: Parts, build_id: str, ticket: str) -> None:
    """Let the bearer of a ticket read this build's stream. Raises `Refused`: unauthorized."""
    digest, now = digest_of(ticket), parts.now()
    with parts.database.read() as tx:
        found = tokens.find_ticket(tx, digest, build_id, now, now - AFTER_END)
    if found is None:
        raise Refused("unauthorized", "The ticket is not one for this build, or too old.", remedy="Ask for a new one.")
    if found.used_at is None:
        with parts.database.write() as tx:
            tokens.use_ticket(tx, digest, now)
