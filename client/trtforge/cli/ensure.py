"""`trtforge ensure`: for an init container: the engine is there when it ends, whoever built it."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trtforge.cache import Cache
from trtforge.cli.order import bar
from trtforge.cli.session import FAILED, INTERRUPTED, Json, PublicKey, Token, Url, describe, exit_code
from trtforge.cli.stop import Stop
from trtforge.cli.text import byte_count, complain, plain
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
    profiles_of,
    spec_of,
    target_of,
)
from trtforge.contract.events import Event
from trtforge.contract.resolve import Policy
from trtforge.ensure import ensure as ensure_kept
from trtforge.errors import TrtforgeError
from trtforge.fingerprint import fingerprint


def ensure(
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
    policy: Annotated[Policy, typer.Option(help="How near an engine must be to this machine.")] = "exact",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", dir_okay=False, help="Also put the plan there, as a link or a copy."),
    ] = None,
    cache_dir: Annotated[Path | None, typer.Option(envvar="TRTFORGE_CACHE_DIR", help="Folder of the cache.")] = None,
    cache_size: Annotated[str | None, typer.Option(help="What the cache may hold: 20GiB")] = None,
    patience: Annotated[float, typer.Option(help="Seconds to outlive an absence of the service.")] = 60.0,
    public_key: PublicKey = None,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Have the engine for this machine here: from the cache, else from the service, which builds it if need be.

    Prints where the plan lies. What is in the cache is found with the service down too.
    """
    asked = model if model.startswith("sha256:") else existing(model)
    spec = spec_of(
        profiles_of(low, best, high, fixed, profile), optimization_level, workspace, precision, option, plugin
    )
    machine = fingerprint().model_copy(update=target_of(target).model_dump(exclude_none=True))
    out = Console(stderr=True, highlight=False, markup=False, emoji=False)  # stdout has the path and nothing else
    try:
        cache = Cache(cache_dir, byte_count(cache_size) if cache_size else None)
        with Stop(out).listening(), bar(out, "fetch") as moved:
            kept = ensure_kept(
                asked, spec, machine, policy, None, cache, url, token, patience, _told, moved, public_key
            )
        if output:
            _put(kept.path, output)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--cache-size") from None
    except (TrtforgeError, OSError) as trouble:
        complain(describe(trouble))
        raise typer.Exit(exit_code(trouble) if isinstance(trouble, TrtforgeError) else FAILED) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    typer.echo(kept.manifest.model_dump_json() if as_json else plain(output or kept.path))


def _told(event: Event) -> None:
    """Say on stderr what the builder does, so that stdout has only the path."""
    if event.type in ("queued", "started", "stage", "failed", "cancelled", "succeeded"):
        complain(f"{event.type} {getattr(event, 'stage', '')}".strip())


def _put(plan: Path, goal: Path) -> None:
    """Give the plan a second name, atomically; a copy on another disk."""
    draft = goal.with_name(f".{goal.name}.new")
    draft.unlink(missing_ok=True)
    try:
        draft.hardlink_to(plan)
    except OSError:
        shutil.copyfile(plan, draft)
    draft.replace(goal)
    with suppress(FileNotFoundError):  # two links to one file: rename leaves both
        draft.unlink()
