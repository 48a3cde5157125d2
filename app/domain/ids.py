"""Ids: opaque, unguessable, with a prefix that tells a reader what they name."""

import secrets


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(10)}"
