"""What operators ask of a service; reached as `client.admin`. The token needs the scope `admin`."""

from trtforge.connection import Connection
from trtforge.contract.keeping import Collection, Verification

_LONG_S = 3600.0  # seconds without an answer: hashing a large store takes its time


class Admin:
    """Every method raises `ServiceError` when the service refuses and `ServiceUnreachable` when it does not answer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # ---- order in the store

    def gc(self, dry_run: bool = False) -> Collection:
        """Remove what the service's settings let go, or only say what would go and why."""
        asked = {"dry_run": "true"} if dry_run else {}
        return Collection.model_validate_json(
            self._connection.send("POST", "/v1/gc", params=asked, read_s=_LONG_S).content
        )

    def verify(self, quick: bool = False) -> Verification:
        """Compare every row with its bytes, and back; `quick` compares sizes only."""
        asked = {"quick": "true"} if quick else {}
        return Verification.model_validate_json(
            self._connection.send("POST", "/v1/verify", params=asked, read_s=_LONG_S).content
        )
