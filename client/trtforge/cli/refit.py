"""`trtforge refit`: an engine with the weights of another model, asked for and watched as a build is."""

from pathlib import Path
from typing import Annotated, Any

import typer

from trtforge.cli.build import NO_MODEL, goal_of
from trtforge.cli.order import carry_out
from trtforge.cli.session import Json, Token, Url
from trtforge.contract.builds import Submit
from trtforge.contract.spec import BuildOptions


def refit(
    engine_key: Annotated[str, typer.Argument(metavar="ENGINE_KEY")],
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", exists=True, dir_okay=False, readable=True)],
    or_build: Annotated[bool, typer.Option("--or-build", help="Build the model as a whole when that fails.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try anew what failed before.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", dir_okay=False, help="Where the plan goes [MODEL.plan].")
    ] = None,
    no_fetch: Annotated[bool, typer.Option("--no-fetch", help="Leave the plan on the service.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Print the build's id and stop.")] = False,
    as_json: Json = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Give an engine that was built for it the weights of another model of the same graph; the engine itself stays."""
    given: dict[str, Any] = {"fallback": [{"spec": {}}]} if or_build else {}
    ask = Submit(model=NO_MODEL, options=BuildOptions(**given, **({"retry": True} if retry else {})))
    goal = None if no_fetch or detach else goal_of(model, output)
    raise typer.Exit(carry_out(ask, model, goal, detach, as_json, url, token, engine_key))
