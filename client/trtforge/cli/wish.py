"""The options that say which engine is wanted, shared by every command that asks for one."""

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from trtforge.cli.shapes import fit, read_json, read_profiles
from trtforge.cli.text import byte_count
from trtforge.contract.models import Model
from trtforge.contract.spec import BuildSpec, FullOptions, OptimizationProfile
from trtforge.contract.target import TargetSelector

Shapes = list[str]

Low = Annotated[Shapes | None, typer.Option("--minShapes", help="Smallest shapes: x:1x3x64x64,y:1x8")]
Best = Annotated[Shapes | None, typer.Option("--optShapes", help="Shapes to tune for; alone: also min, max.")]
High = Annotated[Shapes | None, typer.Option("--maxShapes", help="Largest shapes. Repeat for more profiles.")]
Fixed = Annotated[Shapes | None, typer.Option("--shapes", help="min, opt and max in one.")]
ProfileJson = Annotated[Shapes | None, typer.Option("--profile", help='A profile as JSON: {"x": {"min": […], …}}')]
Level = Annotated[
    int | None, typer.Option("--optimization-level", "--builderOptimizationLevel", help="Higher searches longer.")
]
Workspace = Annotated[str | None, typer.Option(help="Scratch memory the engine may use: 1GiB")]
Precision = Annotated[str | None, typer.Option(help="as_is keeps the model's own.")]
Extra = Annotated[
    Shapes | None,
    typer.Option("--option", help="Of the full builder, as field=value: refit=identical, sparsity=true. Repeatable."),
]
PluginNames = Annotated[
    Shapes | None, typer.Option("--plugin", help="Library on the operator's list that the model needs. Repeatable.")
]
Machine = Annotated[
    Shapes | None,
    typer.Option("--target", help="What is known of the machine, as field=value: driver=580.12. Repeatable."),
]
ModelOrDigest = Annotated[str, typer.Argument(metavar="MODEL.onnx|sha256:…")]


def given(fields: dict[str, Any]) -> dict[str, Any]:
    """Leave out what was not given: the service fills the rest."""
    return {name: value for name, value in fields.items() if value is not None}


def profiles_of(
    low: Shapes | None, best: Shapes | None, high: Shapes | None, fixed: Shapes | None, as_json: Shapes | None
) -> tuple[OptimizationProfile, ...]:
    try:
        return (*read_profiles(low or [], best or [], high or [], fixed or []), *map(read_json, as_json or []))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def size_of(words: str | None) -> int | None:
    try:
        return None if words is None else byte_count(words)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--workspace") from None


def spec_of(
    profiles: tuple[OptimizationProfile, ...],
    level: int | None,
    workspace: str | None,
    precision: str | None,
    extra: Shapes | None = None,
    plugin: Shapes | None = None,
) -> BuildSpec:
    fields = {"profiles": profiles or None, "optimization_level": level, "precision": precision}
    return BuildSpec(**given({**fields, "workspace_bytes": size_of(workspace)}), **extras(extra), **plugins_of(plugin))


def plugins_of(names: Shapes | None) -> dict[str, Any]:
    """Return the field that names plugin libraries; none where none is named."""
    if not names:
        return {}
    try:
        return {"plugins": BuildSpec(plugins=tuple(names)).plugins}
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(f"{first['input']!r}: {first['msg']}", param_hint="--plugin") from None


def extras(words: Shapes | None) -> dict[str, Any]:
    """Read `refit=identical`, `sparsity=true`, `tactic_dram_bytes=1GiB`, `tactic_sources=cudnn,cublas`."""
    fields: dict[str, Any] = {}
    for pair in words or []:
        name, equals, value = pair.partition("=")
        if not equals or name not in FullOptions.model_fields:
            known = ", ".join(FullOptions.model_fields)
            raise typer.BadParameter(f"{pair!r} is not field=value with one of {known}", param_hint="--option")
        fields[name] = _extra(name, value)
    try:
        return FullOptions(**fields).model_dump(include=set(fields))
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(f"{first['loc'][0]}: {first['msg']}", param_hint="--option") from None


def _extra(name: str, value: str) -> Any:
    if name in ("tactic_sources", "plugins_to_serialize"):
        return tuple(filter(None, value.split(",")))
    if name.endswith("_bytes"):
        try:
            return byte_count(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--option") from None
    return {"true": True, "false": False}.get(value, value)


def fitted(spec: BuildSpec, model: Model) -> BuildSpec:
    """Return the spec with its profiles spelled out for the inputs of the model."""
    profiles = tuple(fit(profile, model.inputs) for profile in spec.profiles)
    return spec.model_copy(update={"profiles": profiles}) if profiles else spec


def target_of(words: Shapes | None) -> TargetSelector:
    """Read `driver=580.12`, `compute_capabilities=8.6,8.9` and the other fields of a target."""
    fields: dict[str, Any] = {}
    for pair in words or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"{pair!r} is not field=value", param_hint="--target")
        fields[name] = tuple(value.split(",")) if name == "compute_capabilities" else value
    try:
        return TargetSelector(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", param_hint="--target") from None


def existing(words: str) -> Path:
    """Return the model file. Raises what typer shows when there is none."""
    path = Path(words)
    if not path.is_file():
        raise typer.BadParameter(f"there is no file {words}", param_hint="MODEL")
    return path
