"""The command's front: names and one line each. What a command needs is imported when it is called, not before."""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup

from trtforge import __version__

GROUP = "trtforge.commands"  # entry points that bring further commands: a function or a typer.Typer

_OURS = {
    "build": ("trtforge.cli.build:build", "Build an engine from an ONNX model, watch it, fetch it."),
    "doctor": ("trtforge.cli.doctor:doctor", "Say what a build would fail on, without building."),
    "watch": ("trtforge.cli.look:watch", "Watch a build until it ends."),
    "show": ("trtforge.cli.look:show", "Show a build or an engine's manifest."),
    "builds": ("trtforge.cli.look:builds", "List builds, newest first."),
    "engines": ("trtforge.cli.look:engines", "List engines, newest first."),
    "diff": ("trtforge.cli.find:diff", "Say why two engines differ."),
    "resolve": ("trtforge.cli.find:resolve", "Find the engine a machine can take, and why others are refused."),
    "name": ("trtforge.cli.name:name", "Set, show and list names that pods can hold for an engine."),
    "targets": ("trtforge.cli.look:targets", "List what the service can build for."),
    "log": ("trtforge.cli.look:log", "Print the builder's log of a build."),
    "cancel": ("trtforge.cli.act:cancel", "Stop a build."),
    "withdraw": ("trtforge.cli.act:withdraw", "Take back one request; the build goes on while others wait."),
    "ensure": ("trtforge.cli.ensure:ensure", "Have the engine for this machine here; build it first if need be."),
    "gc": ("trtforge.cli.keep:gc", "Remove what the retention of the service lets go, or say what would go."),
    "verify": ("trtforge.cli.keep:verify", "Compare what the service has in its index with the bytes it has."),
    "fetch": ("trtforge.cli.act:fetch", "Fetch an engine's plan, verified."),
    "token": ("trtforge.cli.token:token", "Create, list and revoke tokens: who may use the service."),
    "export": ("trtforge.cli.carry:export", "Export engines: an archive, or a folder for an image."),
    "import": ("trtforge.cli.carry:import_", "Import engines that were exported elsewhere."),
    "refit": ("trtforge.cli.refit:refit", "Give an engine the weights of another model of the same graph."),
    "rebuild": ("trtforge.cli.carry:rebuild", "Build an engine again and say whether the bytes are the same."),
    "key": ("trtforge.cli.key:key", "Make and list keys that sign engines."),
}

_EXIT_CODES = """Exit codes: 0 done; 1 the build failed, was cancelled, or its plan could not be kept; 2 wrong usage, or
the service refused; 3 the service does not answer; 130 interrupted."""


class Commands(TyperGroup):
    """A group that knows its commands by name and loads the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*_OURS, *sorted(e.name for e in _theirs() if e.name not in _OURS)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a stand-in with the name and its line: all that a list of commands needs."""
        if cmd_name in _OURS:
            return _command(cmd_name, _nothing, _OURS[cmd_name][1])
        for entry in _theirs():
            if entry.name == cmd_name:
                origin = entry.dist.name if entry.dist else entry.value
                return _command(cmd_name, _nothing, f"Of {origin}: see trtforge {cmd_name} --help.")
        return None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and self._load(str(name)), rest

    def _load(self, name: str) -> Any:
        if name in _OURS:
            module, _, function = _OURS[name][0].partition(":")
            return _command(name, getattr(import_module(module), function))
        return _command(name, next(e for e in _theirs() if e.name == name).load())


def _theirs() -> list[EntryPoint]:
    return list(entry_points(group=GROUP))


def _nothing() -> None:
    """Stand in for a command that is only listed."""


def _command(name: str, loaded: Callable[..., Any] | typer.Typer, line: str | None = None) -> Any:
    if not isinstance(loaded, typer.Typer):
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name, help=line, epilog=_EXIT_CODES)(loaded)
        loaded = single
    command = typer.main.get_command(loaded)
    command.name = name
    return command


app = typer.Typer(
    cls=Commands,
    name="trtforge",
    epilog=_EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Build TensorRT engines on a service, watch them, fetch them."""


def run() -> None:
    app()
