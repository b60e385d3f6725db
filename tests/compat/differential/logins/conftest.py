"""One Apache Kafka and one Seqgate with every mechanism, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.differential.logins.endpoints import Endpoint, gateway_with_logins, kafka_with_logins


@pytest.fixture(scope="session")
def kafka_side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with kafka_with_logins(tmp_path_factory.mktemp("kafka-with-logins")) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def gateway_side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with gateway_with_logins(tmp_path_factory.mktemp("gateway-with-logins")) as endpoint:
        yield endpoint
