from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spark_kafka_compat import SparkCompatError
from spark_kafka_compat.databases import (
    POSTGRESQL,
    SQLITE,
    Database,
    Dialect,
    insert_statement,
    is_database_error,
)


@pytest.fixture
def database(database_url: str) -> Database:
    made = Database(database_url)
    with made.transaction() as transaction:
        transaction.execute('CREATE TABLE totals (name TEXT PRIMARY KEY, "50%" INTEGER)')
    return made


def rows(database: Database) -> list[tuple[str, int]]:
    with database.transaction() as transaction:
        return list(transaction.execute("SELECT * FROM totals ORDER BY name").fetchall())


def test_a_failed_transaction_leaves_no_row(database: Database) -> None:
    with database.transaction() as transaction:
        transaction.insert("totals", ("name", "50%"), [("a", 1), ("b", 2)])
    with pytest.raises(ZeroDivisionError), database.transaction() as transaction:  # noqa: PT012
        transaction.insert("totals", ("name", "50%"), [("c", 3)])
        raise ZeroDivisionError
    assert rows(database) == [("a", 1), ("b", 2)]


def test_errors_of_a_driver_are_recognized(database: Database) -> None:
    with pytest.raises(Exception, match="missing") as raised, database.transaction() as transaction:
        transaction.execute("SELECT * FROM missing")
    assert is_database_error(raised.value)
    assert not is_database_error(ZeroDivisionError())


def test_a_row_replaces_the_row_with_the_same_key(database: Database) -> None:
    for value in (1, 2):
        with database.transaction() as transaction:
            transaction.insert("totals", ("name", "50%"), [("a", value)], key=["name"])
    with database.transaction() as transaction:
        transaction.insert("totals", ("name",), [("a",), ("b",)], key=["name"])
    assert rows(database) == [("a", 2), ("b", None)]


@pytest.mark.parametrize(
    ("dialect", "statement"),
    [
        (SQLITE, 'INSERT INTO "s"."t" ("a", "b""%") VALUES (?, ?)'),
        (POSTGRESQL, 'INSERT INTO "s"."t" ("a", "b""%%") VALUES (%s, %s)'),
    ],
)
def test_names_are_quoted(dialect: Dialect, statement: str) -> None:
    assert insert_statement(dialect, "s.t", ["a", 'b"%']) == statement


def test_a_key_must_be_among_the_columns() -> None:
    with pytest.raises(SparkCompatError, match="The key of t needs c, but the rows have a, b"):
        insert_statement(SQLITE, "t", ["a", "b"], ["a", "c"])


@pytest.mark.parametrize("url", ["mysql://host/name", "/var/lib/file.db", ""])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(SparkCompatError, match="postgresql://"):
        Database(url)


@pytest.mark.parametrize("url", ["sqlite:///no/such/folder/file.db", "postgresql://127.0.0.1:1/name"])
def test_an_unreachable_database_is_refused(url: str) -> None:
    with pytest.raises(SparkCompatError, match="can't be"):
        Database(url).connect()


def test_a_missing_psycopg_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SparkCompatError, match=r"seqgate\[postgresql\]"):
        Database("postgresql://127.0.0.1:1/name").connect()


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(Database("postgresql://me:secret@host/name"))


def test_a_relative_path_starts_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Database("sqlite:a%20file.db").connect().close()
    with Database("sqlite:a%20file.db").transaction():
        pass
    assert (tmp_path / "a file.db").exists()
