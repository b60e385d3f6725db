"""Apache Kafka's own kafka-acls adds, lists and removes entries of a gateway, which then lets its clients in
or not.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("kafka-acls") / "data", settings=SETTINGS) as running:
        yield running


def acls(gateway: GatewayProcess, *arguments: str) -> list[str]:
    """Run the tool; return the entries that it prints."""
    tool = run_tool("kafka-acls", "--bootstrap-server", gateway.bootstrap, *arguments).expect_success()
    return sorted(line.strip() for line in tool.stdout.splitlines() if line.strip().startswith("(principal="))


def shown(principal: str, operation: str, permission: str = "ALLOW", host: str = "*") -> str:
    return f"(principal={principal}, host={host}, operation={operation}, permissionType={permission})"


def test_entries_are_added_listed_and_removed(gateway: GatewayProcess) -> None:
    prefixed = ("--resource-pattern-type", "prefixed", "--topic", "orders-")
    acls(gateway, "--add", "--allow-principal", "User:alice", "--producer", *prefixed)
    acls(
        gateway, "--add", "--allow-principal", "User:alice", "--consumer", "--topic", "orders", "--group", "g"
    )
    acls(
        gateway, "--add", "--deny-principal", "User:*", "--deny-host", "192.0.2.7", "--operation", "Delete",
        "--topic", "*",
    )  # fmt: skip
    alice = [shown("User:alice", operation) for operation in ("CREATE", "DESCRIBE", "WRITE")]
    denied = shown("User:*", "DELETE", "DENY", "192.0.2.7")
    assert acls(gateway, "--list", *prefixed) == alice
    assert acls(gateway, "--list", "--topic", "orders-eu", "--resource-pattern-type", "match") == sorted(
        [*alice, denied]
    )
    assert acls(gateway, "--list", "--group", "g") == [shown("User:alice", "READ")]
    assert len(acls(gateway, "--list", "--principal", "User:alice")) == 6
    acls(gateway, "--remove", "--force", *prefixed)
    acls(gateway, "--remove", "--force", "--topic", "*", "--resource-pattern-type", "match")
    assert acls(gateway, "--list") == [
        shown("User:alice", "DESCRIBE"),
        shown("User:alice", "READ"),
        shown("User:alice", "READ"),
    ]
    acls(gateway, "--remove", "--force", "--topic", "orders", "--group", "g")
    assert acls(gateway, "--list") == []


def test_the_cluster_and_transactional_ids_have_entries(gateway: GatewayProcess) -> None:
    acls(gateway, "--add", "--allow-principal", "User:a", "--operation", "IdempotentWrite", "--cluster")
    acls(gateway, "--add", "--allow-principal", "User:a", "--operation", "All", "--transactional-id", "tx")
    assert acls(gateway, "--list", "--cluster") == [shown("User:a", "IDEMPOTENT_WRITE")]
    assert acls(gateway, "--list", "--transactional-id", "tx") == [shown("User:a", "ALL")]
    acls(gateway, "--remove", "--force", "--cluster", "--transactional-id", "tx")
    assert acls(gateway, "--list") == []
