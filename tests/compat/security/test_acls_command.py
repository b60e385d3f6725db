"""`seqgate acls` against a gateway and against Apache Kafka, both with an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.compat.commands.conftest import PEERS, Peer
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_peer import KafkaPeer

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module", params=PEERS)
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    folder = tmp_path_factory.mktemp("acls-command")
    running: GatewayProcess | KafkaPeer
    if request.param == PEERS[0]:
        running = GatewayProcess(folder / "data", settings=AUTHORIZER)
    else:
        running = KafkaPeer(folder, properties=AUTHORIZER)
    with running:
        yield Peer(request.param, running.bootstrap)


def listed(peer: Peer, *arguments: str) -> list[str]:
    return [text(row) for row in peer.json("acls", "list", *arguments)["acls"]]


def text(row: dict[str, Any]) -> str:
    star = "*" if row["pattern_type"] == "PREFIXED" else ""
    return " ".join(
        [
            row["principal"],
            row["permission"],
            row["operation"],
            row["resource_type"],
            row["resource_name"] + star,
            row["host"],
        ]
    )


def test_a_producer_and_a_consumer(peer: Peer) -> None:
    added = peer.run("acls", "add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    assert added.stdout.splitlines() == [
        "User:alice may WRITE topic orders from *: added",
        "User:alice may DESCRIBE topic orders from *: added",
        "User:alice may CREATE topic orders from *: added",
    ]
    peer.run(
        "acls", "add", "--allow-principal", "User:bob", "--consumer", "--group", "g",
        "--topic", "or", "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    bob = [f"User:bob ALLOW {operation} TOPIC or* *" for operation in ("READ", "DESCRIBE")]
    alice = [f"User:alice ALLOW {operation} TOPIC orders *" for operation in ("WRITE", "CREATE", "DESCRIBE")]
    assert listed(peer, "--topic", "orders", "--resource-pattern-type", "match") == [*bob, *alice]
    assert listed(peer, "--topic", "orders") == alice
    assert listed(peer, "--principal", "User:bob") == [*bob, "User:bob ALLOW READ GROUP g* *"]
    table = peer.run("acls", "list", "--group", "g").stdout.splitlines()
    assert table[0].split() == [
        "resource", "name", "pattern", "principal", "host", "operation", "permission",
    ]  # fmt: skip
    assert table[2].split() == ["group", "g", "prefixed", "User:bob", "*", "READ", "allow"]
    removed = peer.run(
        "acls",
        "remove",
        "--yes",
        "--allow-principal",
        "User:alice",
        "--operation",
        "Create",
        "--topic",
        "orders",
    )
    assert removed.stdout == "1 entry removed.\n"
    removed = peer.run("acls", "remove", "--yes", "--topic", "orders", "--resource-pattern-type", "match")
    assert removed.stdout == "4 entries removed.\n"
    peer.run("acls", "remove", "--yes", "--principal", "User:bob", "--resource-pattern-type", "any")
    assert peer.run("acls", "list").stdout == "There are no such entries.\n"


def test_denials_hosts_and_the_cluster(peer: Peer) -> None:
    peer.run(
        "acls", "add", "--deny-principal", "User:*", "--deny-host", "192.0.2.7", "--deny-host", "192.0.2.8",
        "--operation", "describe", "--operation", "ALL", "--topic", "*", "--transactional-id", "tx",
    )  # fmt: skip
    peer.run("acls", "add", "--allow-principal", "User:a", "--idempotent", "--producer", "--topic", "t")
    assert len(listed(peer, "--principal", "User:*")) == 8
    assert listed(peer, "--cluster") == ["User:a ALLOW IDEMPOTENT_WRITE CLUSTER kafka-cluster *"]
    peer.run(
        "acls", "remove", "--yes", "--cluster", "--topic", "*", "--topic", "t", "--transactional-id", "tx"
    )
    assert listed(peer) == []


def test_nothing_is_removed_without_a_word(peer: Peer) -> None:
    peer.run("acls", "add", "--allow-principal", "User:a", "--operation", "read", "--topic", "kept")
    refused = peer.run("acls", "remove", "--topic", "kept", code=1)
    assert "Nothing is changed" in refused.stdout
    assert len(listed(peer, "--topic", "kept")) == 1
    peer.run("acls", "remove", "--yes", "--topic", "kept")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("add", "--topic", "t", "--operation", "read"), "name an --allow-principal or a --deny-principal"),
        (("add", "--allow-principal", "User:a", "--operation", "read"), "name a resource: --topic"),
        (("add", "--allow-principal", "User:a", "--topic", "t"), "name an --operation"),
        (
            ("add", "--allow-principal", "a", "--topic", "t", "--operation", "read"),
            "the principal 'a' must have the form User:NAME",
        ),
        (
            ("add", "--allow-principal", "User:a", "--topic", "t", "--operation", "fly"),
            "there is no operation fly; choose from ALL, READ",
        ),
        (("add", "--allow-principal", "User:a", "--consumer", "--topic", "t"), "--consumer needs --group"),
        (("add", "--allow-host", "h", "--producer", "--topic", "t"), "--allow-host needs --allow-principal"),
        (("remove", "--deny-host", "h", "--topic", "t"), "name an --operation"),
        (("remove",), "name the entries to remove"),
    ],
)
def test_wrong_options(peer: Peer, arguments: tuple[str, ...], sentence: str) -> None:
    assert sentence in peer.run("acls", *arguments, code=2).stderr


def test_a_refused_entry(peer: Peer) -> None:
    refused = peer.run(
        "acls",
        "add",
        "--allow-principal",
        "User:a",
        "--operation",
        "read",
        "--topic",
        "",
        "--topic",
        "t",
        code=1,
    )
    assert [line.rpartition(": ")[2] for line in refused.stdout.splitlines()] == [
        "Invalid empty resource name (INVALID_REQUEST)",
        "added",
    ]
    peer.run("acls", "remove", "--yes", "--topic", "t")
