"""Apache Kafka's kafka-configs sets, shows and deletes SCRAM users of the gateway."""

from __future__ import annotations

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool


def _configs(gateway: GatewayProcess, *arguments: str) -> str:
    tool = ("kafka-configs", "--bootstrap-server", gateway.bootstrap, "--entity-type", "users")
    return run_tool(*tool, *arguments).expect_success().stdout


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafka_configs_sets_shows_and_deletes_a_user(shared_gateway: GatewayProcess, mechanism: str) -> None:
    name = f"tool-user-{mechanism[-3:]}"
    user = ("--entity-name", name)
    _configs(
        shared_gateway, "--alter", *user, "--add-config", f"{mechanism}=[iterations=8192,password=pen cil]"
    )
    assert f"{mechanism}=iterations=8192" in _configs(shared_gateway, "--describe", *user)
    assert name in _configs(shared_gateway, "--describe")
    _configs(shared_gateway, "--alter", *user, "--delete-config", mechanism)
    assert mechanism not in _configs(shared_gateway, "--describe", *user)
