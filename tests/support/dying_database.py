"""A database whose client process kills itself with SIGKILL at a chosen moment."""

from __future__ import annotations

import os
import signal
from collections import Counter
from dataclasses import dataclass
from typing import Any

from seqgate.spark_kafka_compat.databases import Database, DatabaseConnection

Death = tuple[str, int]
"""The kind of moment and its number. Kinds are `begun`, `rows`, `committing` and `committed`; `any` counts
moments of all kinds.
"""

KINDS = ("begun", "rows", "committing", "committed")


class Moments:
    """Counts moments, and kills the process at the chosen one."""

    def __init__(self, death: Death | None) -> None:
        self._death = death
        self.seen: Counter[str] = Counter()

    def reached(self, kind: str) -> None:
        self.seen.update([kind, "any"])
        if self._death is not None and self._death[0] in {kind, "any"}:
            name, number = self._death
            if self.seen[name] == number:
                os.kill(os.getpid(), signal.SIGKILL)


class _Cursor:
    def __init__(self, cursor: Any, moments: Moments) -> None:
        self._cursor = cursor
        self._moments = moments
        self._moments.reached("begun")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def executemany(self, statement: str, rows: Any) -> None:
        self._cursor.executemany(statement, rows)
        self._moments.reached("rows")


class _Connection:
    def __init__(self, connection: DatabaseConnection, moments: Moments) -> None:
        self._connection = connection
        self._moments = moments

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def cursor(self) -> _Cursor:
        return _Cursor(self._connection.cursor(), self._moments)

    def commit(self) -> None:
        self._moments.reached("committing")
        self._connection.commit()
        self._moments.reached("committed")


@dataclass(frozen=True)
class DyingDatabase(Database):
    """The database with such a client. A pipeline's first claim counts too: it takes two transactions."""

    moments: Moments

    def connect(self) -> DatabaseConnection:
        return _Connection(super().connect(), self.moments)
