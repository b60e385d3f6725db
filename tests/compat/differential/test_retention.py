"""Retention and DeleteRecords: Seqgate and Apache Kafka get the same bytes while both check retention every
50 ms."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.compat.differential.compare import differences
from tests.compat.differential.retention import GATEWAY_SETTINGS, KAFKA_PROPERTIES, RETENTION_SCENARIOS
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_peer import KafkaPeer

TOKEN = uuid.uuid4().hex[:8]


@pytest.fixture(scope="module")
def forgetful_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    with KafkaPeer(tmp_path_factory.mktemp("kafka") / "k", properties=KAFKA_PROPERTIES) as peer:
        yield peer


@pytest.fixture(scope="module")
def forgetful_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("gateway") / "data", settings=GATEWAY_SETTINGS) as process:
        yield process


@pytest.mark.parametrize("name", RETENTION_SCENARIOS)
def test_answers_agree(name: str, forgetful_kafka: KafkaPeer, forgetful_gateway: GatewayProcess) -> None:
    scenario = RETENTION_SCENARIOS[name]
    with ThreadPoolExecutor(1) as beside:
        at_kafka = beside.submit(scenario.run, forgetful_kafka.bootstrap, TOKEN)
        seen = scenario.run(forgetful_gateway.bootstrap, TOKEN)
    expected = at_kafka.result()
    assert not expected.exchanges[-1].instead, expected.exchanges[-1]
    found = differences(expected, seen)
    assert not found, "\n".join([f"{name}:", *map(str, found)])
