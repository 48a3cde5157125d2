"""Commands that carry engines about: export, import, rebuild."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from trtforge.cli.order import bar
from trtforge.cli.session import FAILED, INTERRUPTED, REFUSED, Json, PublicKey, Token, Url, session
from trtforge.cli.text import complain, console, plain
from trtforge.client import Client
from trtforge.contract.builds import Build
from trtforge.contract.words import in_words

Keys = Annotated[list[str], typer.Argument(metavar="ENGINE_KEY…")]


def export(
    engine_keys: Keys,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", dir_okay=False, help="Where the archive goes [stdout].")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", file_okay=False, help="A folder for TRTFORGE_ENGINE_PATH instead.")
    ] = None,
    public_key: PublicKey = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Export engines with their manifests and signatures: an archive, or a folder that ships in an image."""
    if to is None and output is None and sys.stdout.isatty():
        raise typer.BadParameter("An archive is not for a terminal: send it to a file, or take --to FOLDER.")
    with session(url, token, public_key) as client:
        if to:
            with bar(console(), "export") as moved:
                for place in client.artifacts.export_to(engine_keys, to, moved):
                    typer.echo(place)
            return
        if output is None:
            client.artifacts.export(engine_keys, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return
        draft = output.with_name(f".{output.name}.new")
        try:
            with draft.open("wb") as file:
                client.artifacts.export(engine_keys, file)
            draft.replace(output)
        finally:
            draft.unlink(missing_ok=True)


def import_(
    source: Annotated[Path, typer.Argument(metavar="ARCHIVE", help="A file, a folder of `export --to`, or - (stdin).")],
    allow_unsigned: Annotated[
        bool, typer.Option("--allow-unsigned", help="Also what no trusted key signed; the service must allow it too.")
    ] = False,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Import engines that were exported elsewhere; needs a token with the scope admin."""
    with session(url, token) as client:
        taken = client.artifacts.import_archive(sys.stdin.buffer if str(source) == "-" else source, allow_unsigned)
    if as_json:
        typer.echo(taken.model_dump_json())
        return
    for one in taken.items:
        vouched = f"signed by {plain(one.signed_by)[:19]}…" if one.signed_by else "signed by nobody trusted"
        console().print(f"{one.engine_key} {one.outcome}, {vouched}", soft_wrap=True)


def rebuild(
    engine_key: Annotated[str, typer.Argument(metavar="ENGINE_KEY")],
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Build an engine again from its manifest and compare; the stored one stays. Exit code 1: not the same bytes."""
    with session(url, token) as client:
        ended = _ended(client, engine_key)
    if as_json:
        typer.echo(ended.model_dump_json())
    identical = ended.rebuild is not None and ended.rebuild.identical
    if not identical:
        complain(_why(ended))
        raise typer.Exit(FAILED)
    if not as_json:
        console().print(f"{engine_key} byte-identical, built again as {plain(ended.id)}", soft_wrap=True)


def _ended(client: Client, engine_key: str) -> Build:
    submitted = client.artifacts.rebuild(engine_key)
    try:
        client.wait(submitted.request_id)
    except KeyboardInterrupt:
        client.withdraw(submitted.request_id)
        raise typer.Exit(INTERRUPTED) from None
    if submitted.build is None:
        complain(f"{engine_key} was not built again: {submitted.disposition}.")
        raise typer.Exit(REFUSED)
    return client.build(submitted.build.id)


def _why(ended: Build) -> str:
    if ended.failure:
        return f"{ended.id} {ended.state}: {ended.failure.code}: {ended.failure.message}"
    if ended.rebuild is None or ended.rebuild.identical is None:
        return f"{ended.id} {ended.state}"
    at = ended.rebuild.first_difference
    told = [f"{ended.id} gave other bytes" + ("" if at is None else f" from byte {at} on") + ":"]
    return "\n".join([*told, *(f"  {in_words(d.field, d.have, d.asked)}" for d in ended.rebuild.differs)])
