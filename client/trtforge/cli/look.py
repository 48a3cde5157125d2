"""Commands that look and change nothing: watch, show, builds, engines, targets, log."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from itertools import islice
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from trtforge.cli.lines import WAITING_FOR, cancelled, failed, remaining
from trtforge.cli.manifest import budget, summary, target_words
from trtforge.cli.progress import screen
from trtforge.cli.session import FAILED, INTERRUPTED, Json, Token, Url, session
from trtforge.cli.text import console, lines, plain, seconds, size
from trtforge.contract.base import Wire
from trtforge.contract.builds import Build, State
from trtforge.contract.engines import Manifest
from trtforge.memory import memory_plan

BuildId = Annotated[str, typer.Argument(metavar="BUILD")]
Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]
_SHORT = 19  # characters of a digest that still tell engines apart: sha256: and 12 more


def watch(build: BuildId, as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """Watch a build until it ends. Ctrl-C stops watching, not the build."""
    with session(url, token) as client:
        out = console(quiet=as_json)
        try:
            with screen(out, build, as_json) as shown:
                for event in client.events(build):
                    shown.show(event)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        ended = client.build(build)
        _print_build(out, ended)
        raise typer.Exit(0 if ended.state == "succeeded" else FAILED)


def show(
    what: Annotated[str, typer.Argument(metavar="BUILD|ENGINE_KEY")],
    contexts: Annotated[
        int | None, typer.Option(min=1, help="Add up the device memory for so many execution contexts.")
    ] = None,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show a build or an engine's manifest."""
    with session(url, token) as client:
        found: Wire = client.manifest(what) if what.startswith("sha256:") else client.build(what)
        if as_json and contexts and isinstance(found, Manifest):
            typer.echo(json.dumps(asdict(plan) if (plan := memory_plan(found.memory, contexts)) else None))
        elif as_json:
            typer.echo(found.model_dump_json(indent=2))
        elif isinstance(found, Build):
            _print_build(console(), found)
        elif isinstance(found, Manifest):
            console().print(summary(found) + (f"\n{budget(found, contexts)}" if contexts else ""), soft_wrap=True)


def builds(
    state: Annotated[State | None, typer.Option(help="Only in this state.")] = None,
    model: Annotated[str | None, typer.Option(help="Only of this model.")] = None,
    engine_key: Annotated[str | None, typer.Option(help="Only of this engine.")] = None,
    label: Annotated[str | None, typer.Option(help="Only with this key=value.")] = None,
    limit: Limit = 20,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """List builds, newest first."""
    with session(url, token) as client:
        found = client.builds(state, model, engine_key, label, page_size=min(limit, 100))
        _print_all(
            islice(found, limit),
            as_json,
            ("build", "state", "stage", "created", "took", "requests", "model", "engine"),
            lambda b: (b.id, b.state, b.stage or "", _at(b.created_at), _took(b), b.requests, b.model, b.engine_key),
        )


def engines(
    model: Annotated[str | None, typer.Option(help="Only of this model.")] = None,
    builder: Annotated[str | None, typer.Option(help="Only of this builder.")] = None,
    gpu: Annotated[str | None, typer.Option(help="Only for this GPU.")] = None,
    limit: Limit = 20,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """List engines, newest first."""
    with session(url, token) as client:
        found = client.engines(model, builder, gpu, page_size=min(limit, 100))
        _print_all(
            islice(found, limit),
            as_json,
            ("engine", "size", "created", "model", "target"),
            lambda e: (e.engine_key, size(e.plan.size), _at(e.created_at), e.model, target_words(e.target)),
        )


def targets(as_json: Json = False, url: Url = None, token: Token = None) -> None:
    """List what the service can build for."""
    with session(url, token) as client:
        _print_all(
            client.targets().items,
            as_json,
            ("target", "default", "workers", "queue", "what", "precisions"),
            lambda t: (
                t.id,
                "yes" if t.default else "",
                t.workers,
                t.queue_length,
                target_words(t.target),
                ", ".join(t.capabilities.precisions),
            ),
        )


def log(build: BuildId, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Print the builder's log of a build."""
    with session(url, token) as client:
        text = client.log(build)
        typer.echo(_JsonText(text=text).model_dump_json() if as_json else lines(text))


class _JsonText(Wire):
    text: str


def _print_build(out: Console, build: Build) -> None:
    """Print a build's main lines, and why it ended as it did."""
    waiting = f", {WAITING_FOR[build.waiting_for]}" if build.waiting_for and build.state == "queued" else ""
    told = [
        f"build  {plain(build.id)} {build.state}{waiting}" + (f", stage {build.stage}" if build.stage else ""),
        f"engine {build.engine_key}",
        f"model  {build.model}",
        f"target {target_words(build.target)}",
        f"took   {_took(build)}, attempt {build.attempt}, {build.requests} requests wait",
    ]
    if build.progress and build.progress.estimate:
        told.append(remaining(build.progress.estimate))
    if build.follows:
        told.append(f"after  {plain(build.follows)}, whose requests fell back to this one")
    if build.followed_by:
        told.append(f"then   {', '.join(map(plain, build.followed_by))}, to which its requests fell back")
    if build.labels:
        told.append("labels " + ", ".join(f"{plain(k)}={plain(v)}" for k, v in build.labels.items()))
    if build.cancel:
        told.append(cancelled(build.cancel))
    if build.failure:
        told.append(failed(build.failure))
    out.print("\n".join(told), soft_wrap=True)


def _print_all(found: Iterable[Any], as_json: bool, heads: tuple[str, ...], row: Any) -> None:
    """Print a table whose digests are short on a terminal; with `as_json` one whole object a line."""
    if as_json:
        for one in found:
            typer.echo(one.model_dump_json())
        return
    out = console()
    table = Table(*heads, box=None, pad_edge=False, header_style="bold")
    for one in found:
        table.add_row(*(_cell(value, short=out.is_terminal) for value in row(one)))
    out.print(table)


def _cell(value: object, short: bool) -> str:
    words = plain(value)
    return words[:_SHORT] + "…" if short and words.startswith("sha256:") else words


def _at(moment: Any) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def _took(build: Build) -> str:
    if build.started_at is None:
        return "not started"
    if build.finished_at is None:
        return f"{seconds(build.progress.elapsed_s)} so far" if build.progress else "running"
    return seconds((build.finished_at - build.started_at).total_seconds())
