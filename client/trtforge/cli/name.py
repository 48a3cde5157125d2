"""`trtforge name`: a stable word for a model, spec and policy, which a pod spec can hold."""

from typing import Annotated

import typer

from trtforge.cli.session import Json, Token, Url, session
from trtforge.cli.text import console, plain
from trtforge.cli.wish import (
    Best,
    Extra,
    Fixed,
    High,
    Level,
    Low,
    Machine,
    ModelOrDigest,
    PluginNames,
    Precision,
    ProfileJson,
    Workspace,
    existing,
    fitted,
    profiles_of,
    spec_of,
    target_of,
)
from trtforge.contract.base import Wire
from trtforge.contract.names import Name, NameVersion, Want
from trtforge.contract.resolve import Policy

name = typer.Typer(help="Set, show and list names that pods can hold for an engine.", no_args_is_help=True)

Which = Annotated[str, typer.Argument(metavar="NAME")]


@name.command("set")
def set_name(
    which: Which,
    model: ModelOrDigest,
    low: Low = None,
    best: Best = None,
    high: High = None,
    fixed: Fixed = None,
    profile: ProfileJson = None,
    optimization_level: Level = None,
    workspace: Workspace = None,
    precision: Precision = None,
    option: Extra = None,
    plugin: PluginNames = None,
    target: Machine = None,
    policy: Annotated[Policy, typer.Option(help="How near an engine must be to a machine that asks.")] = "exact",
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Let NAME stand for a model and how it is built, for everyone from then on; uploads the model if need be."""
    spec = spec_of(
        profiles_of(low, best, high, fixed, profile), optimization_level, workspace, precision, option, plugin
    )
    with session(url, token) as client:
        known = client.model(model) if model.startswith("sha256:") else client.upload(existing(model))
        want = Want(model=known.digest, spec=fitted(spec, known), target=target_of(target), policy=policy)
        _print(client.set_name(which, want), as_json)


@name.command("show")
def show_name(
    which: Which,
    history: Annotated[bool, typer.Option("--history", help="What it stood for before, too.")] = False,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show what a name stands for."""
    with session(url, token) as client:
        if not history:
            _print(client.name(which), as_json)
        for version in client.name_history(which).items if history else ():
            _print(version, as_json)


@name.command("list")
def list_names(as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """List names, newest first."""
    with session(url, token) as client:
        for one in client.names():
            _print(one, as_json)


@name.command("remove")
def remove_name(which: Which, url: Url = None, token: Token = None) -> None:
    """Let a name stand for nothing; engines and history stay."""
    with session(url, token) as client:
        client.remove_name(which)


def _print(one: Wire, as_json: bool) -> None:
    if as_json:
        typer.echo(one.model_dump_json(exclude_unset=True))
    elif isinstance(one, Name):
        console().print(f"{plain(one.name)} version {one.version}: {_wanted(one)}", soft_wrap=True)
    elif isinstance(one, NameVersion):
        stood_for = _wanted(one.want) if one.want else "removed"
        by = f"by {plain(one.by)} at {one.at:%Y-%m-%d %H:%M:%S} UTC"
        console().print(f"version {one.version} {by}: {stood_for}", soft_wrap=True)


def _wanted(want: Name | Want) -> str:
    said = {**want.spec.model_dump(mode="json", exclude_unset=True), **want.target.model_dump(exclude_none=True)}
    words = "".join(f", {plain(field)} {plain(value)}" for field, value in said.items())
    return f"model {want.model}, policy {want.policy}{words}"
