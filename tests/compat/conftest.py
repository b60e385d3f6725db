"""The real Apache Kafka that compatibility tests compare with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kafka_peer import KafkaPeer


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    """One running Apache Kafka node for the whole session; tests keep apart by topic names."""
    with KafkaPeer(tmp_path_factory.mktemp("kafka")) as peer:
        yield peer
