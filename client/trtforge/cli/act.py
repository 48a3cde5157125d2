"""Commands that act on what is there: cancel, withdraw, fetch."""

from pathlib import Path
from typing import Annotated

import typer

from trtforge.cli.lines import cancelled
from trtforge.cli.manifest import summary
from trtforge.cli.order import bar
from trtforge.cli.session import Json, PublicKey, Token, Url, session
from trtforge.cli.text import console, plain
from trtforge.cli.wish import Machine, target_of
from trtforge.client import Client
from trtforge.contract.builds import TERMINAL, Build
from trtforge.fingerprint import fingerprint

_STOP_S = 60.0  # longer than a grace and a kill


def cancel(
    build: Annotated[str, typer.Argument(metavar="BUILD")],
    reason: Annotated[str | None, typer.Option(help="Why; others read it.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Even if others wait for it; needs the right to.")] = False,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Stop a build and wait until it has stopped."""
    with session(url, token) as client:
        client.cancel(build, reason, force)
        ended = _ended(client, build)
        if as_json:
            typer.echo(ended.model_dump_json())
        else:
            how = cancelled(ended.cancel) if ended.cancel else ended.state
            console().print(f"build {plain(ended.id)} {how}", soft_wrap=True)


def _ended(client: Client, build_id: str) -> Build:
    build = client.build(build_id, wait_s=_STOP_S)
    while build.state not in TERMINAL:
        build = client.build(build_id, wait_s=_STOP_S)
    return build


def withdraw(
    request: Annotated[str, typer.Argument(metavar="REQUEST")],
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Take back one request; its build goes on while others wait for it."""
    with session(url, token) as client:
        client.withdraw(request)
        after = client.request(request)
        if as_json:
            typer.echo(after.model_dump_json())
        else:
            console().print(f"request {plain(after.id)} {after.state}", soft_wrap=True)


def fetch(
    engine_key: Annotated[str | None, typer.Argument(metavar="ENGINE_KEY")] = None,
    name: Annotated[str | None, typer.Option(help="The engine that this name means for this machine, instead.")] = None,
    target: Machine = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait until the name means an engine that is there.")] = 0.0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", dir_okay=False, help="Where the plan goes [<key>.plan].")
    ] = None,
    triton: Annotated[
        Path | None,
        typer.Option("--triton", file_okay=False, help="A model repository of Triton, which gets a folder for it."),
    ] = None,
    triton_name: Annotated[str | None, typer.Option(help="Triton's name for it [engine-…].")] = None,
    public_key: PublicKey = None,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Fetch an engine's plan, verified, whole or not at all; by its key, or by a name for an init container."""
    if (engine_key is None) == (name is None):
        raise typer.BadParameter("give the key of an engine or --name, one of the two", param_hint="ENGINE_KEY")
    if engine_key and (target or wait):
        raise typer.BadParameter("--target and --wait go with --name: a key is of one engine, which is there or not")
    with session(url, token, public_key) as client:
        out = console(quiet=as_json)
        if name:
            machine = fingerprint().model_copy(update=target_of(target).model_dump(exclude_none=True))
            engine_key = client.named(name, machine, wait)
        assert engine_key
        goal = output or Path(engine_key.removeprefix("sha256:")[:12] + ".plan")
        if triton:
            with bar(out, "fetch for Triton") as moved:
                typer.echo(client.artifacts.triton(engine_key, triton, triton_name, moved))
            return
        with bar(out, f"fetch {plain(goal.name)}") as moved:
            manifest = client.fetch(engine_key, goal, progress=moved)
        if as_json:
            typer.echo(manifest.model_dump_json())
        out.print(f"{summary(manifest)}\nplan   {plain(goal)} (verified)", soft_wrap=True)
