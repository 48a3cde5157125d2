"""`trtforge build`: upload, ask, watch, fetch; Ctrl-C takes the request back and shows how that ended."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import ValidationError

from trtforge.cli.order import carry_out
from trtforge.cli.session import Json, Token, Url
from trtforge.cli.wish import (
    Best,
    Extra,
    Fixed,
    High,
    Level,
    Low,
    Precision,
    ProfileJson,
    Shapes,
    Workspace,
    extras,
    given,
    profiles_of,
    size_of,
)
from trtforge.contract.builds import Submit
from trtforge.contract.spec import BuildOptions, BuildSpec, OptimizationProfile
from trtforge.contract.target import TargetSelector

NO_MODEL = "sha256:" + "0" * 64  # stands in until the upload has told the digest


def build(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", exists=True, dir_okay=False, readable=True)],
    low: Low = None,
    best: Best = None,
    high: High = None,
    fixed: Fixed = None,
    profile: ProfileJson = None,
    optimization_level: Level = None,
    workspace: Workspace = None,
    precision: Precision = None,
    option: Extra = None,
    compute_capability: Annotated[Shapes | None, typer.Option(help="GPUs to build for: 8.9. Repeatable.")] = None,
    builder: Annotated[Literal["tensorrt", "tensorrt_rtx"] | None, typer.Option(help="Which TensorRT.")] = None,
    label: Annotated[Shapes | None, typer.Option(help="key=value to find it by. Repeatable.")] = None,
    priority: Annotated[int, typer.Option(help="Higher first.")] = 0,
    run_timeout: Annotated[float | None, typer.Option(help="Seconds the build may run.")] = None,
    queue_timeout: Annotated[float | None, typer.Option(help="Seconds it may wait for a worker.")] = None,
    stall_timeout: Annotated[
        float | None, typer.Option(help="Seconds the builder may neither speak nor compute.")
    ] = None,
    fallback: Annotated[
        Shapes | None,
        typer.Option(help="On failure or timeout: '{\"optimization_level\": 1}', or existing. Repeat for more."),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Build anew what failed before.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", dir_okay=False, help="Where the plan goes [MODEL.plan].")
    ] = None,
    no_fetch: Annotated[bool, typer.Option("--no-fetch", help="Leave the plan on the service.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Print the build's id and stop.")] = False,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Build an engine from an ONNX model, watch it, fetch it.

    Shapes are written as for trtexec. Ctrl-C takes the request back: the build stops unless others wait for it.
    A second Ctrl-C leaves at once.
    """
    ask = _submit(
        profiles=profiles_of(low, best, high, fixed, profile),
        spec={
            "optimization_level": optimization_level,
            "precision": precision,
            "workspace_bytes": size_of(workspace),
            **extras(option),
        },
        target={"builder": builder, "compute_capabilities": tuple(compute_capability) if compute_capability else None},
        options={
            "run_timeout_s": run_timeout,
            "queue_timeout_s": queue_timeout,
            "stall_timeout_s": stall_timeout,
            "fallback": _fallback(fallback or []),
            "priority": priority or None,
            "labels": _labels(label or []),
            "retry": retry or None,
        },
    )
    goal = None if no_fetch or detach else goal_of(model, output)
    raise typer.Exit(carry_out(ask, model, goal, detach, as_json, url, token))


def goal_of(model: Path, output: Path | None) -> Path:
    """Return where the plan goes. Raises `BadParameter` where there is no such folder."""
    goal = output or Path(f"{model.stem}.plan")
    if not goal.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {goal.parent}", param_hint="--output")
    return goal


def _submit(
    profiles: tuple[OptimizationProfile, ...], spec: dict[str, Any], target: dict[str, Any], options: dict[str, Any]
) -> Submit:
    """Return what to ask for, with only the fields that were given: the service fills the rest."""
    try:
        return Submit(
            model=NO_MODEL,
            target=TargetSelector(**given(target)),
            spec=BuildSpec(**given({"profiles": profiles or None, **spec})),
            options=BuildOptions(**given(options)),
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _fallback(steps: list[str]) -> list[Any] | None:
    try:
        return [step if step == "existing" else {"spec": json.loads(step)} for step in steps] or None
    except ValueError:
        raise typer.BadParameter("give a spec as JSON, or existing", param_hint="--fallback") from None


def _labels(pairs: list[str]) -> dict[str, str] | None:
    for pair in pairs:
        if "=" not in pair:
            raise typer.BadParameter(f"{pair!r} is not key=value", param_hint="--label")
    return dict(pair.split("=", 1) for pair in pairs) or None
