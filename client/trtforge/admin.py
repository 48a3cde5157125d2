"""What operators ask of a service; reached as `client.admin`. The token needs the scope `admin`."""

from collections.abc import Iterator

from trtforge.connection import Connection
from trtforge.contract.keeping import Collection, Verification
from trtforge.contract.tokens import NewToken, Scope, Token, TokenAsk, TokenPage

_JSON = {"Content-Type": "application/json"}
_LONG_S = 3600.0  # seconds without an answer: hashing a large store takes its time


class Admin:
    """Every method raises `ServiceError` when the service refuses and `ServiceUnreachable` when it does not answer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # ---- tokens

    def create_token(self, name: str, scope: Scope = "build", expires_in_s: float | None = None) -> NewToken:
        """Make a token. Its secret is in this answer and nowhere else. Sent once: a cut may leave one that is unknown."""
        body = TokenAsk(name=name, scope=scope, expires_in_s=expires_in_s).model_dump_json()
        answer = self._connection.send("POST", "/v1/tokens", content=body, headers=_JSON)
        return NewToken.model_validate_json(answer.content)

    def tokens(self, page_size: int | None = None) -> Iterator[Token]:
        """Yield tokens, newest first, page after page; revoked and expired ones too."""
        asked: dict[str, str | int] = {"limit": page_size} if page_size else {}
        while True:
            answer = self._connection.send("GET", "/v1/tokens", params=asked)
            page = TokenPage.model_validate_json(answer.content)
            yield from page.items
            if page.next_cursor is None:
                return
            asked["cursor"] = page.next_cursor

    def revoke_token(self, token_id: str) -> None:
        """Let a token be worth nothing from now on; within seconds in every process of the service."""
        self._connection.insist("DELETE", f"/v1/tokens/{token_id}")

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
