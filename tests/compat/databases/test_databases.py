"""Transactions and errors of each database that a pipeline can write into."""

from __future__ import annotations

import pytest

from seqgate.spark_kafka_compat import SparkCompatError
from seqgate.spark_kafka_compat.databases import Database, is_database_error


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


@pytest.mark.parametrize("url", ["sqlite:///no/such/folder/file.db", "postgresql://127.0.0.1:1/name"])
def test_an_unreachable_database_is_refused(url: str) -> None:
    with pytest.raises(SparkCompatError, match="can't be"):
        Database(url).connect()
