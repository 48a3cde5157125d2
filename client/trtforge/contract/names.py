"""Names: a stable word that a pod spec can hold for a want; which engine it means is found at call time."""

from typing import Annotated

from pydantic import StringConstraints

from trtforge.contract.base import Asked, Digest, Instant, Wire
from trtforge.contract.resolve import Policy
from trtforge.contract.spec import BuildSpec
from trtforge.contract.target import TargetSelector

NAME = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$"

EngineName = Annotated[str, StringConstraints(pattern=NAME)]


class Want(Asked):
    """Body of `PUT /v1/names/{name}`. `target`: the machine, as far as the one that asks does not say otherwise."""

    model: Digest
    spec: BuildSpec = BuildSpec()
    target: TargetSelector = TargetSelector()
    policy: Policy = "exact"


class Name(Wire):
    """A name and what it stands for now; `version` rises with every change and is never used twice."""

    name: EngineName
    version: int
    model: Digest
    spec: BuildSpec
    target: TargetSelector
    policy: Policy
    created_at: Instant
    updated_at: Instant


class NamePage(Wire):
    items: tuple[Name, ...]
    next_cursor: str | None


class NameVersion(Wire):
    """What a name stood for since `at`; nothing when it was removed then."""

    version: int
    want: Want | None
    by: str
    at: Instant


class NameHistory(Wire):
    """Every version, newest first."""

    items: tuple[NameVersion, ...]
