"""Several threads' work in one commit: the disk is waited for once, and the writer's lock is handed on once."""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError

T = TypeVar("T")
MOST = 32  # pieces of work in one commit: the first must not wait for ever


class Piece(Generic[T]):
    """The work of one thread, which stands alone: what it wrote stays or goes, whatever becomes of the others."""

    def __init__(self, work: Callable[[Connection], T]) -> None:
        self._work = work
        self._made: list[T] = []
        self._error: BaseException | None = None
        self.done = False

    def run(self, tx: Connection, noted: list[object]) -> None:
        """Raises what spoils the whole transaction: the database's own errors."""
        before = len(noted)
        try:
            with tx.begin_nested():
                self._made = [self._work(tx)]
        except DBAPIError as error:
            if not isinstance(error, IntegrityError):
                raise
            self._fail(error, noted, before)
        except Exception as error:
            self._fail(error, noted, before)

    def _fail(self, error: Exception, noted: list[object], before: int) -> None:
        self._error = error
        del noted[before:]

    def end(self, error: BaseException | None) -> None:
        self._error, self.done = self._error or error, True

    def result(self) -> T:
        if self._error:
            raise self._error
        return self._made[0]


class Together:
    """`do` gathers what threads bring while another commits; whoever comes first then commits for them all."""

    def __init__(self, write: Callable[[], AbstractContextManager[Connection]], noted: str) -> None:
        self._write, self._noted = write, noted
        self._turn = threading.Lock()
        self._waiting: deque[Piece[Any]] = deque()

    def do(self, work: Callable[[Connection], T]) -> T:
        """Return what `work` returns, once it is committed. Raises what it raises, and what `write` raises."""
        mine = Piece(work)
        self._waiting.append(mine)
        while not mine.done:
            with self._turn:
                if not mine.done:
                    self._commit()
        return mine.result()

    def _commit(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST))]
        error: BaseException | None = None
        try:
            with self._write() as tx:
                for piece in batch:
                    piece.run(tx, tx.info[self._noted])
        except BaseException as raised:
            error = raised
        for piece in batch:
            piece.end(error)
