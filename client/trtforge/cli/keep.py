"""Commands that keep the store of a service in order: gc, verify."""

from typing import Annotated

import typer

from trtforge.cli.session import FAILED, Json, Token, Url, session
from trtforge.cli.text import console, plain, size
from trtforge.contract.keeping import Collection, Verification


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go, and why.")] = False,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Remove what the retention and the quota of the service let go, or say what would go and why."""
    with session(url, token) as client:
        done = client.admin.gc(dry_run)
        if as_json:
            typer.echo(done.model_dump_json(indent=2))
        else:
            console().print(_collected(done), soft_wrap=True)


def _collected(done: Collection) -> str:
    told = [f"{item.kind:<8} {plain(item.id)}  {size(item.bytes)}  {plain(item.why)}" for item in done.items]
    verb = "would go" if done.dry_run else "went"
    told.append(f"{len(done.items)} things {verb}, {size(done.bytes)}; the store held {size(done.store_bytes)}.")
    return "\n".join([*told, "There is more: ask again."] if done.more else told)


def verify(
    quick: Annotated[bool, typer.Option("--quick", help="Compare sizes, do not read the bytes.")] = False,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Compare every engine and model in the index of the service with its bytes, and back; exit code 1 when one is wrong."""
    with session(url, token) as client:
        found = client.admin.verify(quick)
        if as_json:
            typer.echo(found.model_dump_json(indent=2))
        else:
            console().print(verified(found), soft_wrap=True)
    if not found.ok:
        raise typer.Exit(FAILED)


def verified(found: Verification) -> str:
    told = [f"{one.fault:<9} {one.kind:<10} {plain(one.id)}  {plain(one.detail)}" for one in found.faults]
    read = "sizes compared" if found.quick else f"{size(found.bytes)} read"
    word = "nothing wrong" if found.ok else f"{len(found.faults)} things wrong"
    return "\n".join([*told, f"{found.engines} engines, {found.models} models, {read}: {word}."])
