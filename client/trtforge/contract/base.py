"""What all wire types share: frozen values; answers tolerate unknown fields, requests refuse them."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


def _as_utc(at: datetime) -> datetime:
    try:
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except OverflowError as error:  # a value's error, which every reader expects
        raise ValueError("the instant lies outside the calendar") from error


Instant = Annotated[datetime, AfterValidator(_as_utc)]  # RFC 3339, always UTC on the wire


class Wire(BaseModel):
    """A value the service sends. A newer service may add fields; readers ignore them."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Asked(BaseModel):
    """A value a client sends. An unknown field is an error: silently dropping an option builds the wrong engine."""

    model_config = ConfigDict(frozen=True, extra="forbid")
