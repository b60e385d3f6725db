"""Relational databases through DB-API 2: SQLite (`sqlite3`) and PostgreSQL (`psycopg`).

All that differs between the two is in this module: how a connection is made, how a transaction begins and locks, the placeholder
of a parameter. Both know `INSERT … ON CONFLICT`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from spark_kafka_compat.errors import SparkCompatError

LOCK_TIMEOUT_MS = 30_000


class Cursor(Protocol):
    """What is needed of a DB-API 2 cursor."""

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> object: ...
    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]], /) -> object: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """What is needed of a DB-API 2 connection."""

    def cursor(self) -> Any: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Dialect:
    """How one database differs from the other."""

    name: str
    placeholder: str
    begin: tuple[str, ...]
    """Statements that begin a transaction; it waits for a lock for at most `LOCK_TIMEOUT_MS`."""
    lock_schema: tuple[str, ...]
    """Statements after which only this transaction creates tables."""
    has_table: str
    """Asks whether there is a table of a name."""
    row_lock: str
    """What a SELECT ends with to keep other transactions from its rows."""
    connect: Callable[[str], Connection]


def _connect_sqlite(url: str) -> Connection:
    path = unquote(url.removeprefix("sqlite:").removeprefix("//"))
    try:
        # With isolation_level=None the module begins nothing by itself.
        return sqlite3.connect(path, timeout=LOCK_TIMEOUT_MS / 1_000, isolation_level=None)
    except sqlite3.Error as error:
        raise SparkCompatError(f"The database {path} can't be opened ({error}).") from error


def _connect_postgresql(url: str) -> Connection:
    try:
        import psycopg
    except ImportError:
        raise SparkCompatError(
            'psycopg is not installed; install it with: pip install "seqgate[postgresql]"'
        ) from None
    try:
        return psycopg.connect(url)
    except psycopg.Error as error:
        raise SparkCompatError(f"The database can't be reached ({error}).") from error


SQLITE = Dialect(
    name="SQLite",
    placeholder="?",
    begin=("BEGIN IMMEDIATE",),
    lock_schema=(),
    has_table="SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?",
    row_lock="",
    connect=_connect_sqlite,
)
POSTGRESQL = Dialect(
    name="PostgreSQL",
    placeholder="%s",
    begin=(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}",),
    lock_schema=("SELECT pg_advisory_xact_lock(5281743601)",),
    has_table="SELECT 1 WHERE to_regclass(%s) IS NOT NULL",
    row_lock=" FOR UPDATE",
    connect=_connect_postgresql,
)
_BY_SCHEME = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "postgres": POSTGRESQL}


@dataclass(frozen=True)
class Transaction:
    """An open transaction: what is written through it counts altogether or not at all.

    Its owner commits; who writes through it must not. Parameters in statements are written as the driver wants them:
    `?` for SQLite, `%s` for PostgreSQL, or `placeholder`.
    """

    cursor: Cursor
    dialect: Dialect

    @property
    def placeholder(self) -> str:
        """What stands for a parameter in a statement."""
        return self.dialect.placeholder

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Run a statement; the cursor has its rows."""
        # Without parameters a driver leaves percent signs alone.
        self.cursor.execute(statement, *([parameters] if parameters else []))
        return self.cursor

    def has_table(self, name: str) -> bool:
        """Whether a table of this name would be found."""
        return self.execute(self.dialect.has_table, (name,)).fetchone() is not None

    def insert(
        self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, key: Sequence[str] = ()
    ) -> None:
        """Insert rows; with `key`, columns under a unique constraint, a row whose key is there takes the place of the old one."""
        self.cursor.executemany(insert_statement(self.dialect, table, columns, key), rows)


@dataclass(frozen=True)
class Database:
    """A database by its URL: `sqlite:///absolute/path.db`, `sqlite:relative.db` or `postgresql://user:password@host/name`.

    Raises `SparkCompatError` for other URLs, when the driver is not installed, and when there is no connection. Errors of
    the driver in a transaction pass through.
    """

    url: str = field(repr=False)

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in _BY_SCHEME:
            raise SparkCompatError(
                "A database is given as sqlite:///path/to/file.db or postgresql://user@host/name."
            )

    @property
    def dialect(self) -> Dialect:
        """SQLite's or PostgreSQL's."""
        return _BY_SCHEME[urlsplit(self.url).scheme]

    def connect(self) -> Connection:
        """A new connection, outside of any transaction."""
        return self.dialect.connect(self.url)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """One transaction on a connection of its own: committed at the end, rolled back when the block raises."""
        connection = self.connect()
        try:
            transaction = Transaction(connection.cursor(), self.dialect)
            for statement in self.dialect.begin:
                transaction.execute(statement)
            try:
                yield transaction
            except BaseException:
                # To close is not enough: SQLite keeps the lock as long as a cursor has rows to give.
                with suppress(Exception):
                    connection.rollback()
                raise
            connection.commit()
        finally:
            connection.close()


def is_database_error(error: Exception) -> bool:
    """Whether a driver raised it: all errors of one have a base class of this name (PEP 249)."""
    return any(
        kind.__name__ == "Error" and kind.__module__.split(".")[0] in {"sqlite3", "psycopg"}
        for kind in type(error).__mro__
    )


def insert_statement(dialect: Dialect, table: str, columns: Sequence[str], key: Sequence[str] = ()) -> str:
    """The INSERT for rows of these columns. Names are quoted, so that they mean exactly what they say; dots part schema and table.

    Raises `SparkCompatError` for a key that is not among the columns.
    """
    missing = [column for column in key if column not in columns]
    if missing:
        raise SparkCompatError(
            f"The key of {table} needs {', '.join(missing)}, but the rows have {', '.join(columns)}."
        )
    names = ", ".join(quoted(column, dialect) for column in columns)
    places = ", ".join(dialect.placeholder for _ in columns)
    name = ".".join(quoted(part, dialect) for part in table.split("."))
    statement = f"INSERT INTO {name} ({names}) VALUES ({places})"  # noqa: S608
    if not key:
        return statement
    changed = [quoted(column, dialect) for column in columns if column not in key]
    action = (
        f"DO UPDATE SET {', '.join(f'{column} = excluded.{column}' for column in changed)}"
        if changed
        else "DO NOTHING"
    )
    keys = ", ".join(quoted(column, dialect) for column in key)
    return f"{statement} ON CONFLICT ({keys}) {action}"


def quoted(name: str, dialect: Dialect) -> str:
    """An identifier, in a statement that has parameters."""
    inside = name.replace('"', '""')
    return f'"{inside.replace("%", "%%") if dialect.placeholder == "%s" else inside}"'
