"""Engines that were taken in from elsewhere."""

from typing import Literal

from trtforge.contract.base import Digest, Wire


class ImportedEngine(Wire):
    engine_key: Digest
    outcome: Literal["imported", "present"]
    signed_by: str | None  # id of the trusted key; None: nobody vouches for it, and the operator took it all the same


class Imported(Wire):
    """Answer of `POST /v1/import`."""

    items: tuple[ImportedEngine, ...]
