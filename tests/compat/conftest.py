"""The peers of compatibility tests: Apache Kafka to compare with, and databases that pipelines write into."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.kafka_peer import KafkaPeer

if TYPE_CHECKING:
    from tests.support.postgresql_server import PostgresqlServer


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    """One running Apache Kafka node for the whole session; every test uses its own topic names."""
    with KafkaPeer(tmp_path_factory.mktemp("kafka")) as peer:
        yield peer


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """One running PostgreSQL; each test asks it for a database of its own."""
    # its package is not in the extra `test`
    from tests.support.postgresql_server import PostgresqlServer

    with PostgresqlServer() as server:
        yield server


def empty_database(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> str:
    """Return the URL of an empty database of this kind."""
    if kind == "SQLite":
        return f"sqlite://{tmp_path / 'database.db'}"
    return str(request.getfixturevalue("postgresql").fresh_database())


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    return empty_database(request, request.param, tmp_path)
