"""What every command shares: where the service is, and how its refusals end the command."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from trtforge.cli.shapes import as_json, as_trtexec
from trtforge.cli.text import complain, lines, plain
from trtforge.client import Client
from trtforge.errors import ServiceError, ServiceUnreachable, TrtforgeError

FAILED, REFUSED, UNREACHABLE, INTERRUPTED = 1, 2, 3, 130  # exit codes, as --help lists them

Url = Annotated[
    str | None, typer.Option("--url", envvar="TRTFORGE_URL", help="Address of the service [http://127.0.0.1:8080].")
]
Token = Annotated[
    str | None, typer.Option("--token", envvar="TRTFORGE_TOKEN", help="Token, if the service asks for one.")
]
PublicKey = Annotated[
    list[str] | None,
    typer.Option("--public-key", metavar="FILE", help="Take only what this key signed [TRTFORGE_PUBLIC_KEY]."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")]


@contextmanager
def session(url: str | None, token: str | None, public_key: list[str] | None = None) -> Iterator[Client]:
    """Open a client. Its errors become a message on stderr and an exit code; Ctrl-C becomes 130."""
    try:
        with Client(url, token, public_key=public_key) as client:
            yield client
    except (TrtforgeError, OSError) as trouble:
        if isinstance(trouble, BrokenPipeError):
            raise
        complain(describe(trouble))
        raise typer.Exit(exit_code(trouble)) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def exit_code(trouble: Exception) -> int:
    if isinstance(trouble, ServiceError):
        return REFUSED
    return UNREACHABLE if isinstance(trouble, ServiceUnreachable) else FAILED


def describe(trouble: Exception) -> str:
    """Return what a person needs to go on: each problem with its place and remedy, and a template to fill in."""
    if not isinstance(trouble, ServiceError):
        return lines(trouble)
    problem = trouble.problem
    told = [f"{plain(problem.code)}: {plain(problem.detail)}"]
    if not problem.errors:
        told.append(f"  → {plain(problem.remedy)}")
    for one in problem.errors:
        told += [f"  {_where(one.where)}{plain(one.message)}", f"    → {plain(one.remedy)}"]
    return "\n".join(told + _template(trouble.members.get("template")))


def _where(where: dict[str, Any]) -> str:
    return ", ".join(f"{plain(name)} {plain(place)}" for name, place in where.items()) + ": " if where else ""


def _template(template: Any) -> list[str]:
    """Return the profile template in both spellings; nothing when the service sent none, or one of another shape."""
    profiles = [template] if isinstance(template, dict) else template
    if not profiles:
        return []
    try:
        return [
            "Adapt these to what you will run, and add them:",
            f"  {plain(as_trtexec(profiles))}",
            "or",
            f"  {plain(as_json(profiles))}",
        ]
    except (AttributeError, KeyError, TypeError):
        return []
