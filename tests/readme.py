"""The tables of README.md, from the code: `python -m tests.readme` (or `make docs`) writes them between their markers."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import typer.main
from annotated_types import Ge, Gt, Le, Lt
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from app.domain.states import TRANSITIONS
from app.main import create_app
from app.settings import Settings
from trtforge.cli.main import app
from trtforge.contract.failures import CODES

README = Path(__file__).resolve().parents[1] / "README.md"
SECRETS = ("database_url", "admin_token", "signing_key")


def main() -> None:
    README.write_text(written(README.read_text()))


def written(text: str) -> str:
    """Return `text` with every table as the code has it now. Raises `ValueError` when a marker is missing."""
    for name, table in TABLES.items():
        start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, found, rest = text.partition(start)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"README.md has no {start.strip()} … {end}")
        text = f"{before}{start}{table()}{end}{after}"
    return text


def settings() -> str:
    return _table(("setting", "default", "takes", "what"), (_setting(*item) for item in Settings.model_fields.items()))


def _setting(name: str, field: FieldInfo) -> tuple[str, ...]:
    return f"`TRTFORGE_{name.upper()}`", _default(field), _takes(field), field.description or ""


def _default(field: FieldInfo) -> str:
    """What depends on the machine has no default here; its description says what it is."""
    if field.default_factory is not None or field.default is None:
        return ""
    assert not isinstance(field.default, SecretStr)
    return f"`{field.default:g}`" if isinstance(field.default, float) else f"`{field.default}`"


def _takes(field: FieldInfo) -> str:
    words = []
    for rule in field.metadata:
        match rule:
            case Ge(ge=low):
                words.append(f"≥ {low}")
            case Gt(gt=low):
                words.append(f"> {low}")
            case Le(le=high) | Lt(lt=high):
                words.append(f"≤ {high}")
        if pattern := getattr(rule, "pattern", None):
            words.append(", ".join(f"`{word}`" for word in pattern.strip("^$()").split("|")))
    return ", ".join(words)


def codes() -> str:
    rows = (
        (f"`{c.code}`", str(c.status or "ends a build"), c.meaning, c.remedy, c.who, "yes" if c.retryable else "")
        for c in CODES.values()
    )
    return _table(("code", "HTTP", "meaning", "remedy", "who can mend it", "may pass by itself"), rows)


def commands() -> str:
    return _table(("command", "does"), ((f"`{usage}`", line) for usage, line in _commands()))


def _commands() -> Iterator[tuple[str, str]]:
    group: Any = typer.main.get_command(app)
    root = click.Context(group, info_name="trtforge")
    for name in group.list_commands(root):
        _, command, _ = group.resolve_command(root, [name])
        for words, one in _leaves(name, command):
            arguments = [p.metavar or p.name for p in one.params if p.param_type_name == "argument"]
            yield " ".join(["trtforge", words, *map(str, arguments)]), str(one.help).split("\n")[0]


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield name, command
        return
    for under, one in below.items():
        yield f"{name} {under}", one


def addresses() -> str:
    """Every address with what it does: the first line of the route's own description."""
    with TemporaryDirectory() as folder:
        service = create_app(Settings(data_dir=Path(folder) / "data", lock_dir=Path(folder) / "locks"))
        paths: dict[str, dict[str, Any]] = service.openapi()["paths"]
    rows = (
        (f"`{method.upper()} {path}`", str(route["description"]).split("\n")[0])
        for path, routes in paths.items()
        for method, route in routes.items()
        if method != "head"
    )
    return _table(("address", "does"), rows)


def states() -> str:
    rows = (
        (f"`{state}`", ", ".join(f"`{to}`" for to in sorted(ways)) or "it ends") for state, ways in TRANSITIONS.items()
    )
    return _table(("from", "to"), rows)


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


TABLES: dict[str, Callable[[], str]] = {
    "states": states,
    "addresses": addresses,
    "commands": commands,
    "settings": settings,
    "codes": codes,
}

if __name__ == "__main__":
    main()
