"""Commands that find and explain: resolve, diff."""

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
from trtforge.contract.compare import EngineDiff
from trtforge.contract.resolve import Policy, Resolve, Resolved
from trtforge.contract.words import in_words
from trtforge.transfer import digest_of


def resolve(
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
    policy: Annotated[Policy, typer.Option(help="How near is near enough.")] = "exact",
    any_spec: Annotated[bool, typer.Option("--any-spec", help="Any engine of the model will do.")] = False,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Find the engine a machine can take. Without one the near misses are told, and why each was refused."""
    spec = spec_of(
        profiles_of(low, best, high, fixed, profile), optimization_level, workspace, precision, option, plugin
    )
    digest = model if model.startswith("sha256:") else digest_of(existing(model))
    with session(url, token) as client:
        if spec.profiles:
            spec = fitted(spec, client.model(digest))
        asked = {"model": digest, "target": target_of(target), "policy": policy} | ({} if any_spec else {"spec": spec})
        found = client.resolve(Resolve(**asked))
        if as_json:
            typer.echo(found.model_dump_json(indent=2))
        else:
            console().print(_resolved(found), soft_wrap=True)


def _resolved(found: Resolved) -> str:
    differs = [in_words(d.field, d.have, d.asked) for d in found.nearest.differs]
    told = [f"engine {found.engine.engine_key} (policy {found.policy})"]
    told += [f"  differs: {plain(words)}" for words in differs]
    for other in found.candidates:
        if not other.taken:
            told.append(f"not    {other.engine_key}")
            told += [f"  {plain(in_words(o.field, o.have, o.asked))}: {plain(o.why)}" for o in other.objections]
    return "\n".join(told)


def diff(
    a: Annotated[str, typer.Argument(metavar="ENGINE_KEY")],
    b: Annotated[str, typer.Argument(metavar="ENGINE_KEY")],
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Say why two engines differ: what changes from the first to the second."""
    with session(url, token) as client:
        found = client.diff(a, b)
        if as_json:
            typer.echo(found.model_dump_json(indent=2))
        else:
            console().print(_in_lines(found), soft_wrap=True)


def _in_lines(found: EngineDiff) -> str:
    told = [f"The plans are {'the same' if found.same_plan else 'not the same'}, byte for byte."]
    if not found.groups:
        told.append("The manifests say the same.")
    for group, changes in found.groups.items():
        told.append(group)
        told += [f"  {plain(in_words(change.field, change.a, change.b))}" for change in changes]
    return "\n".join(told)
