"""How Alembic runs: on the connection it is given by `app.db.migrate`, which holds the lock and guards foreign keys."""

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext

from app.db.tables import metadata
from app.db.types import Json, Utc


def render_item(kind: str, value: Any, autogen_context: AutogenContext) -> str | Literal[False]:
    """Write our column types by their names."""
    if kind == "type" and isinstance(value, Utc):
        autogen_context.imports.add("from app.db.types import Utc")
        return "Utc()"
    if kind == "type" and value is Json:
        autogen_context.imports.add("from app.db.types import Json")
        return "Json"
    return False


connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("run migrations with `trtforge db upgrade`")
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    render_item=render_item,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
