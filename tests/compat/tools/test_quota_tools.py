"""Apache Kafka's kafka-configs sets, shows and removes client quotas of the gateway."""

from __future__ import annotations

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool


def _configs(gateway: GatewayProcess, *arguments: str) -> str:
    tool = ("kafka-configs", "--bootstrap-server", gateway.bootstrap)
    return run_tool(*tool, *arguments).expect_success().stdout


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        (("--entity-type", "clients", "--entity-default"), "consumer_byte_rate", "1.0E12"),
        (("--entity-type", "users", "--entity-name", "tool-user"), "producer_byte_rate", "1048576.0"),
        (
            (
                *("--entity-type", "users", "--entity-name", "tool-user"),
                *("--entity-type", "clients", "--entity-name", "tool-client"),
            ),
            "request_percentage",
            "12.5",
        ),
        (("--entity-type", "ips", "--entity-name", "192.0.2.50"), "connection_creation_rate", "500.0"),
    ],
)
def test_kafka_configs_sets_shows_and_removes_a_quota(
    shared_gateway: GatewayProcess, entity: tuple[str, ...], key: str, value: str
) -> None:
    _configs(shared_gateway, "--alter", "--add-config", f"{key}={value}", *entity)
    assert f"{key}={value}" in _configs(shared_gateway, "--describe", *entity)
    _configs(shared_gateway, "--alter", "--delete-config", key, *entity)
    assert key not in _configs(shared_gateway, "--describe", *entity)
