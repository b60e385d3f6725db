"""Relational databases through DB-API 2: SQLite (`sqlite3`) and PostgreSQL (`psycopg`).

All differences between the two are in this module: the connection, the begin and the locks of a transaction,
and the placeholder of a parameter. Both databases have `INSERT … ON CONFLICT`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from seqgate.spark_kafka_compat.session import SparkCompatError

LOCK_TIMEOUT_MS = 30_000


class Cursor(Protocol):
    """The methods of a DB-API 2 cursor that this package uses."""

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> object: ...
    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]], /) -> object: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class DatabaseConnection(Protocol):
    """The methods of a DB-API 2 connection that this package uses."""

    def cursor(self) -> Any: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Dialect:
    """The differences between PostgreSQL and SQLite."""

    name: str
    placeholder: str
    begin: tuple[str, ...]
    """The statements that begin a transaction, which waits at most `LOCK_TIMEOUT_MS` for a lock."""
    lock_schema: tuple[str, ...]
    """The statements that keep other transactions from creating tables."""
    has_table: str
    """The query that returns a row when the table exists."""
    row_lock: str
    """The end of a SELECT that locks the selected rows against other transactions."""
    connect: Callable[[str], DatabaseConnection]


def _connect_sqlite(url: str) -> DatabaseConnection:
    path = unquote(url.removeprefix("sqlite:").removeprefix("//"))
    try:
        # With isolation_level=None the sqlite3 module begins no transaction by itself.
        return sqlite3.connect(path, timeout=LOCK_TIMEOUT_MS / 1_000, isolation_level=None)
    except sqlite3.Error as error:
        raise SparkCompatError(f"The database {path} can't be opened ({error}); check the path.") from error


def _connect_postgresql(url: str) -> DatabaseConnection:
    try:
        import psycopg
    except ImportError:
        raise SparkCompatError(
            'psycopg is not installed; install it with: pip install "seqgate[postgresql]"'
        ) from None
    try:
        return psycopg.connect(url)
    except psycopg.Error as error:
        raise SparkCompatError(f"The database can't be reached ({error}); check the URL.") from error


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
    """An open transaction: all its writes count, or none. Its owner commits; a writer must not. Write
    parameters as the driver does: `?` for SQLite, `%s` for PostgreSQL, or `placeholder` for either.
    """

    cursor: Cursor
    dialect: Dialect

    @property
    def placeholder(self) -> str:
        return self.dialect.placeholder

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Run a statement; return the cursor with its rows."""
        # Without parameters, a driver leaves percent signs unchanged.
        self.cursor.execute(statement, *([parameters] if parameters else []))
        return self.cursor

    def has_table(self, name: str) -> bool:
        return self.execute(self.dialect.has_table, (name,)).fetchone() is not None

    def insert(
        self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, key: Sequence[str] = ()
    ) -> None:
        """Insert rows. With `key`, columns under a unique constraint, a row replaces that of its key."""
        self.cursor.executemany(insert_statement(self.dialect, table, columns, key), rows)


@dataclass(frozen=True)
class Database:
    """A database, by its URL: `sqlite:///absolute/path.db`, `sqlite:relative.db` or
    `postgresql://user:password@host/name`.

    Raises `SparkCompatError` for other URLs, when the driver is not installed, and when the connection fails.
    Errors of the driver inside a transaction are not translated.
    """

    url: str = field(repr=False)

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in _BY_SCHEME:
            raise SparkCompatError(
                "The URL of a database must be sqlite:///path/to/file.db or postgresql://user@host/name, "
                f"not {urlsplit(self.url).scheme or 'a text without a scheme'!r}."
            )

    @property
    def dialect(self) -> Dialect:
        return _BY_SCHEME[urlsplit(self.url).scheme]

    def connect(self) -> DatabaseConnection:
        """Open and return a new connection, outside of any transaction."""
        return self.dialect.connect(self.url)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a transaction on its own connection; commit at the end of the block, roll back on an error."""
        connection = self.connect()
        try:
            transaction = Transaction(connection.cursor(), self.dialect)
            for statement in self.dialect.begin:
                transaction.execute(statement)
            try:
                yield transaction
            except BaseException:
                # A close is not enough: SQLite keeps the lock while a cursor has unread rows.
                with suppress(Exception):
                    connection.rollback()
                raise
            connection.commit()
        finally:
            connection.close()


def is_database_error(error: Exception) -> bool:
    """Return True for an error of a driver: all errors of drivers derive from its class Error (PEP 249)."""
    return any(
        kind.__name__ == "Error" and kind.__module__.split(".")[0] in {"sqlite3", "psycopg"}
        for kind in type(error).__mro__
    )


def insert_statement(dialect: Dialect, table: str, columns: Sequence[str], key: Sequence[str] = ()) -> str:
    """Return the INSERT for rows of these columns. Raises `SparkCompatError` for a key beyond them. Names are
    quoted, so their case counts; a dot separates schema and table.
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
    """Return an identifier, quoted for a statement with parameters."""
    inside = name.replace('"', '""')
    return f'"{inside.replace("%", "%%") if dialect.placeholder == "%s" else inside}"'
