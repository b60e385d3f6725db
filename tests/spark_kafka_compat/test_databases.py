from __future__ import annotations

import sys
from pathlib import Path

import pytest

from seqgate.spark_kafka_compat import SparkCompatError
from seqgate.spark_kafka_compat.databases import POSTGRESQL, SQLITE, Database, Dialect, insert_statement


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


@pytest.mark.parametrize("url", ["sqlite:", "sqlite://", "SQLITE:", "sqlite::memory:"])
def test_a_database_of_each_connection_is_refused(url: str) -> None:
    with pytest.raises(SparkCompatError, match=f"^{url} names no file"):
        Database(url)


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
