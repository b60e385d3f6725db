"""Relational databases through DB-API 2: SQLite (`sqlite3`) and PostgreSQL (`psycopg`).

All differences between the two are in this module: the connection, the begin and the locks of a transaction,
and the placeholder of a parameter. Both databases have `INSERT … ON CONFLICT`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    table_columns: str
    """The query that returns the names of a table's columns; no row when there is no such table."""
    row_lock: str
    """The end of a SELECT that locks the selected rows against other transactions."""
    types: Mapping[str, str]
    """The types of columns by Spark's names of types, where the two differ."""
    connect: Callable[[str], DatabaseConnection]


def _sqlite_path(url: str) -> str:
    return unquote(url.partition(":")[2].removeprefix("//"))


def _connect_sqlite(url: str) -> DatabaseConnection:
    path = _sqlite_path(url)
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
    table_columns="SELECT name FROM pragma_table_info(?)",
    row_lock="",
    types={"STRING": "TEXT", "BINARY": "BLOB", "LONG": "BIGINT", "INT": "INTEGER"},
    connect=_connect_sqlite,
)
POSTGRESQL = Dialect(
    name="PostgreSQL",
    placeholder="%s",
    begin=(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}",),
    lock_schema=("SELECT pg_advisory_xact_lock(5281743601)",),
    has_table="SELECT 1 WHERE to_regclass(%s) IS NOT NULL",
    table_columns=(
        "SELECT attname FROM pg_attribute "
        "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
    ),
    row_lock=" FOR UPDATE",
    types={
        "STRING": "TEXT",
        "BINARY": "BYTEA",
        "LONG": "BIGINT",
        "INT": "INTEGER",
        "TINYINT": "SMALLINT",
        "FLOAT": "REAL",
        "DOUBLE": "DOUBLE PRECISION",
        "TIMESTAMP": "TIMESTAMP WITH TIME ZONE",
    },
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
        if self.dialect is SQLITE and _sqlite_path(self.url) in {"", ":memory:"}:
            raise SparkCompatError(
                f"{self.url} names no file, and each connection would have a database of its own; "
                "give a path, such as sqlite:///path/to/file.db."
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
    name = quoted_table(table, dialect)
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


def check_table(database: Database, table: str, columns: Mapping[str, str], key: Sequence[str] = ()) -> None:
    """Raise `SparkCompatError`, with the statement that helps, unless rows of `columns` can be inserted into
    the table. `columns` has the types by Spark's names. The database itself judges the rest, the key and the
    rights, by the plan of the INSERT, which it raises its own error for. Nothing is locked or changed.
    """
    dialect = database.dialect
    shown = quoted_table(table, dialect)
    statement = insert_statement(dialect, table, list(columns), key)
    connection = database.connect()
    try:
        cursor = connection.cursor()
        cursor.execute(dialect.table_columns, (shown if dialect is POSTGRESQL else table.rpartition(".")[2],))
        found = [name for (name,) in cursor.fetchall()]
        if not found:
            raise SparkCompatError(
                f"There is no table {table} in the database. Create it, with types that suit you:\n"
                + create_statement(dialect, table, columns, key)
            )
        is_same = (lambda name: name) if dialect is POSTGRESQL else str.casefold
        known = {is_same(name) for name in found}
        missing = {name: kind for name, kind in columns.items() if is_same(name) not in known}
        if missing:
            raise SparkCompatError(
                f"The table {table} lacks {', '.join(missing)}: it has {', '.join(found)}. Add what is "
                "missing, or choose other columns with --select:\n"
                + "\n".join(
                    f"ALTER TABLE {shown} ADD COLUMN {_column(name, kind, dialect)};"
                    for name, kind in missing.items()
                )
            )
        cursor.execute(f"EXPLAIN {statement}", [None] * len(columns))
    finally:
        connection.close()


def create_statement(
    dialect: Dialect, table: str, columns: Mapping[str, str], key: Sequence[str] = ()
) -> str:
    """Return the CREATE TABLE for rows of these columns, with `key` as the primary key."""
    lines = [_column(name, kind, dialect) for name, kind in columns.items()]
    if key:
        lines.append(f"PRIMARY KEY ({', '.join(quoted(column, dialect) for column in key)})")
    inside = ",\n".join(f"    {line}" for line in lines)
    return f"CREATE TABLE {quoted_table(table, dialect)} (\n{inside}\n);"


def _column(name: str, kind: str, dialect: Dialect) -> str:
    return f"{quoted(name, dialect)} {dialect.types.get(kind.upper(), kind.upper())}"


def quoted_table(table: str, dialect: Dialect) -> str:
    return ".".join(quoted(part, dialect) for part in table.split("."))


def quoted(name: str, dialect: Dialect) -> str:
    """Return an identifier, quoted for a statement with parameters."""
    inside = name.replace('"', '""')
    return f'"{inside.replace("%", "%%") if dialect.placeholder == "%s" else inside}"'
