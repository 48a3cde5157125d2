"""`trtforge doctor`: what a build would fail on, as people read it: problems first, shapes as a table, the fix to paste."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from trtforge.cli.session import FAILED, Json, Token, Url, session
from trtforge.cli.shapes import as_trtexec, fit
from trtforge.cli.text import console, plain
from trtforge.cli.wish import Shapes, profiles_of
from trtforge.contract.models import Model, Preflight, PreflightAsk, Tensor
from trtforge.contract.problem import Trouble
from trtforge.contract.spec import BuildSpec, OptimizationProfile


def doctor(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", exists=True, dir_okay=False, readable=True)],
    low: Annotated[Shapes | None, typer.Option("--minShapes", help="Smallest shapes: x:1x3x64x64,y:1x8")] = None,
    best: Annotated[Shapes | None, typer.Option("--optShapes", help="Shapes to tune for.")] = None,
    high: Annotated[Shapes | None, typer.Option("--maxShapes", help="Largest shapes. Repeat for profiles.")] = None,
    fixed: Annotated[Shapes | None, typer.Option("--shapes", help="min, opt and max in one.")] = None,
    profile: Annotated[Shapes | None, typer.Option(help='A profile as JSON: {"x": {"min": […], …}}')] = None,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Say what a build of a model would fail on, without building: operators, types, and shapes at every corner.

    Shapes are written as for trtexec. Ends with 1 when there is a problem.
    """
    asked = profiles_of(low, best, high, fixed, profile)
    with session(url, token) as client:
        known = client.upload(model)
        profiles = tuple(fit(one, known.inputs) for one in asked)
        found = client.preflight(known.digest, _ask(profiles))
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
    else:
        show(console(), model, known, profiles, found)
    raise typer.Exit(0 if found.ok else FAILED)


def _ask(profiles: tuple[OptimizationProfile, ...]) -> PreflightAsk:
    try:
        return PreflightAsk(spec=BuildSpec(profiles=profiles)) if profiles else PreflightAsk()
    except ValidationError as error:
        raise typer.BadParameter(error.errors()[0]["msg"]) from None


def show(out: Console, path: Path, model: Model, profiles: tuple[OptimizationProfile, ...], found: Preflight) -> None:
    """Print problems, warnings, the table of axes, and the command that builds with what was found."""
    for word, troubles in (("problem", found.problems), ("warning", found.warnings)):
        for trouble in troubles:
            out.print(f"{word}  {plain(trouble.code)}: {plain(trouble.message)}", soft_wrap=True)
            out.print(f"  → {plain(trouble.remedy)}", soft_wrap=True)
    if model.inputs:
        out.print(_table(model.inputs, profiles, found.problems))
    if found.ok:
        out.print("Nothing stands in the way of a build." if not found.warnings else "It can be built.")
    if found.profile_template or found.ok:
        out.print(f"{'Build it' if found.ok else 'Once mended'}:\n  {_command(path, found)}", soft_wrap=True)


def _command(path: Path, found: Preflight) -> str:
    shapes = [{n: asked.model_dump(mode="json") for n, asked in p.items()} for p in found.profile_template]
    return " ".join(filter(None, ("trtforge build", quote(plain(path)), plain(as_trtexec(shapes)) if shapes else "")))


def _table(inputs: Sequence[Tensor], profiles: Sequence[OptimizationProfile], problems: Sequence[Trouble]) -> Table:
    """Return one row for each axis: its extent in the model, then min / opt / max of each profile."""
    table = Table("input", "axis", "model", *(f"profile {n}" for n in range(len(profiles))), box=None, pad_edge=False)
    wrong = {(p.where.get("profile"), p.where.get("input"), p.where.get("axis")) for p in problems}
    for tensor in inputs:
        for number, row in enumerate(_rows(tensor)):
            cells = [
                _cell(profile, tensor.name, number, (n, tensor.name, number) in wrong)
                for n, profile in enumerate(profiles)
            ]
            table.add_row(*row, *cells)
    return table


def _rows(tensor: Tensor) -> Iterator[tuple[str, str, str]]:
    """Yield name, axis and extent; one row for a scalar, and for a rank that the model leaves open."""
    name = f"{plain(tensor.name)} {tensor.dtype}"
    if tensor.shape is None:
        yield name, "?", "any rank"
    elif not tensor.shape:
        yield name, "", "value" if tensor.shape_values else "scalar"
    for axis, extent in enumerate(tensor.shape or ()):
        called = tensor.axes[axis] if tensor.axes else None
        shown = "value" if tensor.shape_values else str(extent) if extent is not None else plain(called or "?")
        yield name if axis == 0 else "", str(axis), shown


def _cell(profile: OptimizationProfile, name: str, axis: int, wrong: bool) -> str:
    asked = profile.get(name)
    if asked is None:
        return "missing" if wrong else ""
    three = [extents[axis] if axis < len(extents) else "?" for extents in (asked.min, asked.opt, asked.max)]
    return " / ".join(map(str, three)) + ("  ← here" if wrong else "")
