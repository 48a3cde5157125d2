"""`trtforge key`: the pair that signs engines and checks them."""

import os
from pathlib import Path
from typing import Annotated

import typer

from trtforge.cli.session import FAILED, Json, Token, Url, session
from trtforge.cli.text import complain, console, plain
from trtforge.signature import KeyUnusable, new_key

key = typer.Typer(help="Make and list keys that sign engines.", no_args_is_help=True)


@key.command("create")
def create_key(
    private: Annotated[Path, typer.Argument(metavar="FILE", help="Where the private key goes; FILE.pub is its pair.")],
) -> None:
    """Make a pair: FILE for `TRTFORGE_SIGNING_KEY_FILE` of the service, FILE.pub for whoever fetches."""
    try:
        secret, public = new_key()
        _write(private, secret, 0o600)
        _write(private.with_name(f"{private.name}.pub"), public, 0o644)
    except (KeyUnusable, OSError) as trouble:
        complain(str(trouble))
        raise typer.Exit(FAILED) from None
    typer.echo(f"{private}.pub")


@key.command("list")
def list_keys(as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """List the public keys that the service signs with."""
    with session(url, token) as client:
        for one in client.artifacts.signing_keys().items:
            if as_json:
                typer.echo(one.model_dump_json())
            else:
                console().print(f"{plain(one.keyid)}\n{one.public_key.strip()}", soft_wrap=True)


def _write(goal: Path, text: str, mode: int) -> None:
    """Write a new file; never over another key."""
    with os.fdopen(os.open(goal, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
