"""`trtforge token`: who may use the service. Needs a token with the scope admin."""

import re
from typing import Annotated

import typer

from trtforge.cli.session import Json, Token, Url, session
from trtforge.cli.text import console, plain
from trtforge.contract.tokens import Scope
from trtforge.contract.tokens import Token as Listed

token = typer.Typer(help="Create, list and revoke tokens.", no_args_is_help=True)

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _span(words: str) -> float:
    """Read `90d`, `12h`, `30m`, `45s`."""
    match = re.fullmatch(r"(\d{1,9})([smhd])", words.strip())
    if match is None:
        raise typer.BadParameter(f"{words!r} is not a span of time; write 90d, 12h, 30m or 45s")
    return float(int(match[1]) * _UNITS[match[2]])


Expires = Annotated[
    float | None,
    typer.Option("--expires-in", parser=_span, metavar="SPAN", help="Worth nothing after 90d, 12h, … [never]."),
]


@token.command("create")
def create_token(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    scope: Annotated[Scope, typer.Option(help="What it may do; each includes those before it.")] = "build",
    expires_in: Expires = None,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Make a token and print its secret, once: alone on stdout, so that it can go to a file or a secret store."""
    with session(url, token) as client:
        made = client.admin.create_token(name, scope, expires_in)
    typer.echo(made.model_dump_json() if as_json else made.secret)
    if not as_json:
        typer.echo(f"{made.id}, scope {made.scope}. The secret is not shown again.", err=True)


@token.command("list")
def list_tokens(as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """List tokens, newest first, revoked ones too."""
    with session(url, token) as client:
        for one in client.admin.tokens():
            if as_json:
                typer.echo(one.model_dump_json())
            else:
                console().print(_line(one), soft_wrap=True)


@token.command("revoke")
def revoke_token(
    token_id: Annotated[str, typer.Argument(metavar="TOKEN_ID")], url: Url = None, token: Token = None
) -> None:
    """Let a token be worth nothing from now on."""
    with session(url, token) as client:
        client.admin.revoke_token(token_id)


def _line(one: Listed) -> str:
    words = [one.id, f"{plain(one.prefix)}…", one.scope, plain(one.name), f"created {one.created_at:%Y-%m-%d}"]
    words.append(f"used {one.last_used_at:%Y-%m-%d %H:%M}" if one.last_used_at else "never used")
    if one.revoked_at:
        words.append(f"revoked {one.revoked_at:%Y-%m-%d}")
    elif one.expires_at:
        words.append(f"expires {one.expires_at:%Y-%m-%d %H:%M}")
    return "  ".join(words)
