"""One Apache Kafka and one Seqgate with an authorizer and logins, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.differential.rights.endpoints import Certificates, Endpoint, secured_gateway, secured_kafka


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def guarded_kafka(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Endpoint]:
    with secured_kafka(tmp_path_factory.mktemp("guarded-kafka"), certificates) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def guarded_gateway(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Endpoint]:
    with secured_gateway(tmp_path_factory.mktemp("guarded-gateway"), certificates) as endpoint:
        yield endpoint
