"""One database: SQLite with a single guarded writer, or Postgres. Synchronous; never called on the event loop."""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine, Table, create_engine, event, make_url, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnection
from sqlalchemy.pool import ConnectionPoolEntry

from app.db.together import Together
from app.errors import Busy, NotReady, Refused

BUSY_TIMEOUT = 5.0  # seconds to wait for a lock or a connection before a request is answered 503
CONNECTIONS = {"pool_size": 8, "max_overflow": 8, "pool_timeout": BUSY_TIMEOUT}
IDLE_LIMIT = 10  # seconds until Postgres rolls back a transaction whose process fell silent: it may hold rows of others

NOTED = "noted"  # key of a transaction's changes to tell of

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # its escape in JSON, not a backslash that stands before "u0000"

T = TypeVar("T")
Tx = Connection  # an open transaction: what every query takes first


def note(tx: Tx, change: object) -> None:
    """Have `Database.committed` called with `change` once this transaction has committed, and never if it does not."""
    tx.info[NOTED].append(change)


def insert_or(tx: Tx, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Return an INSERT that can say what to do on a conflict, in the dialect of `tx`."""
    return insert_for(tx.dialect.name, table)


def insert_for(dialect: str, table: Table) -> sqlite.Insert | postgresql.Insert:
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)


def in_turn(tx: Tx, what: str) -> None:
    """Let one transaction at a time go on from here to its end, of all that name the same. On SQLite they do anyway."""
    if tx.dialect.name != "sqlite":
        key = int.from_bytes(hashlib.sha256(what.encode()).digest()[:8], signed=True)
        tx.execute(text("select pg_advisory_xact_lock(:key)"), {"key": key})


class Database:
    """Transactions on one URL.

    SQLite: WAL, and every write begins IMMEDIATE behind one lock of this process, so two writers never meet as
    "database is locked" in the middle of a transaction. Postgres: read committed; the queries carry their conditions.
    """

    def __init__(self, url: str) -> None:
        self.is_sqlite = make_url(url).get_backend_name() == "sqlite"
        self._pool = _sqlite(url) if self.is_sqlite else _postgres(url)
        self._writer = threading.Lock()
        self._together = Together(self.write, NOTED)
        self._server_lock: FileLock | None = None
        self.committed: Callable[[Any], None] = lambda change: (
            None
        )  # called once for each `note` that is in the database

    @contextmanager
    def read(self) -> Iterator[Tx]:
        """A consistent view. Raises `Busy` when the database cannot be reached in time."""
        with _translated(), self._pool.connect() as tx, tx.begin():
            yield tx

    @contextmanager
    def write(self) -> Iterator[Tx]:
        """A transaction that commits at the end or not at all; what it noted is told after that. Raises `Busy`."""
        with self._begun() as tx:
            noted: list[object] = []
            tx.info[NOTED] = noted
            yield tx
        for change in noted:
            self.committed(change)

    def together(self, work: Callable[[Tx], T]) -> T:
        """Return what `work` returns, committed, perhaps with other threads' work. Raises what it raises, and `Busy`.

        Postgres gathers commits itself; on SQLite each would wait for the disk, one after the other.
        """
        if self.is_sqlite:
            return self._together.do(work)
        with self.write() as tx:
            return work(tx)

    @contextmanager
    def _begun(self) -> Iterator[Tx]:
        with _translated():
            if not self.is_sqlite:
                with self._pool.begin() as tx:
                    yield tx
                return
            if not self._writer.acquire(timeout=BUSY_TIMEOUT):
                raise Busy("another write of this process takes too long")
            try:
                with self._pool.connect().execution_options(trtforge_write=True) as tx, tx.begin():
                    yield tx
            finally:
                self._writer.release()

    def claim_server(self) -> None:
        """Be the only server on this SQLite file for the life of the process. Raises `NotReady` when another one is."""
        path = self._pool.url.database
        if not self.is_sqlite or path is None:
            return
        lock = FileLock(f"{path}.server.lock", thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise NotReady(
                f"another trtforge server uses the SQLite database {path}. Stop it, give this one a data folder of its "
                "own (TRTFORGE_DATA_DIR), or set TRTFORGE_DATABASE_URL to a Postgres that several servers can share."
            ) from None
        self._server_lock = lock

    def ping(self) -> None:
        """Raise `Busy` unless the database answers."""
        with self.read() as tx:
            tx.execute(text("select 1"))

    @property
    def pool(self) -> Engine:
        """For migrations only."""
        return self._pool

    def close(self) -> None:
        self._pool.dispose()
        if self._server_lock:
            self._server_lock.release()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except DataError as error:  # Postgres keeps no NUL in a text
        raise Refused("invalid_request", "A text holds a character that cannot be kept.") from error
    except (OperationalError, InterfaceError) as error:  # locked, unreachable, full: nothing was written
        raise Busy(str(error.orig)) from error
    except NoConnection as error:
        raise Busy("every connection is in use") from error
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise
        raise Busy(str(error.orig)) from error


def _to_json(value: Any) -> str:
    """Names in a stranger's model may hold NUL, which Postgres does not keep: it becomes U+FFFD, on both databases."""
    return _NUL.sub(r"\1\\ufffd", json.dumps(value))


def _sqlite(url: str) -> Engine:
    waits = {"timeout": BUSY_TIMEOUT, "check_same_thread": False}
    made = create_engine(url, connect_args=waits, json_serializer=_to_json, **CONNECTIONS)

    @event.listens_for(made, "connect")
    def _prepare(connection: Any, _entry: ConnectionPoolEntry) -> None:
        connection.isolation_level = None  # the driver must not begin transactions on its own
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(made, "begin")
    def _begin(tx: Connection) -> None:
        write = tx.get_execution_options().get("trtforge_write", False)
        tx.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return made


def _postgres(url: str) -> Engine:
    parsed = make_url(url).set(drivername="postgresql+psycopg")
    made_with = parsed.query.get("options", "")
    limits = f"{made_with} -c lock_timeout={BUSY_TIMEOUT}s -c idle_in_transaction_session_timeout={IDLE_LIMIT}s"
    within = {"options": limits.strip(), "connect_timeout": int(BUSY_TIMEOUT)}
    return create_engine(parsed, pool_pre_ping=True, json_serializer=_to_json, connect_args=within, **CONNECTIONS)
