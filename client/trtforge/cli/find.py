"""Commands that explain: diff."""

from typing import Annotated

import typer

from trtforge.cli.session import Json, Token, Url, session
from trtforge.cli.text import console, plain
from trtforge.contract.compare import EngineDiff
from trtforge.contract.words import in_words


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
