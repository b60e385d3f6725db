"""`seqgate quotas` against a gateway and against Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.compat.commands.conftest import Peer

Fresh = Callable[[str], str]
TIMEOUT_S = 120.0


def eventually(holds: Callable[[], bool]) -> None:
    """Ask until the broker knows of a change, because Kafka answers a change before its brokers know of it."""
    end_s = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < end_s, "the broker never knew of the change"


def test_quotas_are_set_listed_and_removed(peer: Peer, fresh: Fresh) -> None:
    user = fresh("quota-user")
    done = peer.run("quotas", "set", "producer_byte_rate=1048576", "request_percentage=12.5", "--user", user)
    assert done.stdout.splitlines() == [
        f"user {user}: producer_byte_rate=1048576",
        f"user {user}: request_percentage=12.5",
    ]
    peer.run("quotas", "set", "consumer_byte_rate=7", "--user", user, "--default-client-id")
    expected = [
        {"entity": {"client-id": None, "user": user}, "quotas": {"consumer_byte_rate": 7.0}},
        {"entity": {"user": user}, "quotas": {"producer_byte_rate": 1048576.0, "request_percentage": 12.5}},
    ]
    eventually(lambda: peer.json("quotas", "list", "--user", user)["entities"] == expected)
    rows = peer.run("quotas", "list", "--user", user).stdout.splitlines()
    assert any("producer_byte_rate" in row and "1,048,576" in row for row in rows)
    removed = peer.json("quotas", "unset", "producer_byte_rate", "request_percentage", "--user", user)
    assert removed == {
        "entity": {"user": user},
        "set": {},
        "unset": ["producer_byte_rate", "request_percentage"],
    }
    peer.run("quotas", "unset", "consumer_byte_rate", "--user", user, "--default-client-id")
    eventually(
        lambda: peer.run("quotas", "list", "--user", user).stdout == f"There are no quotas of user {user}.\n"
    )


def test_quotas_of_addresses(peer: Peer) -> None:
    peer.run("quotas", "set", "connection_creation_rate=1000", "--ip", "192.0.2.99")
    expected = [{"entity": {"ip": "192.0.2.99"}, "quotas": {"connection_creation_rate": 1000.0}}]
    eventually(lambda: peer.json("quotas", "list", "--ip", "192.0.2.99")["entities"] == expected)
    peer.run("quotas", "unset", "connection_creation_rate", "--ip", "192.0.2.99")


def test_refusals_of_quotas(peer: Peer, fresh: Fresh) -> None:
    user = fresh("quota-user")
    refused = peer.run("quotas", "set", "producer_byte_rate=-1", "--user", user, code=1).stderr
    assert refused.startswith(f"seqgate: user {user}: ")
    assert refused.endswith("(INVALID_REQUEST)\n")
    for arguments in (
        ("set", "producer_byte_rate=1"),
        ("set", "producer_byte_rate=fast", "--user", user),
        ("set", "producer_byte_rate", "--user", user),
        ("set", "producer_byte_rate=1", "--user", user, "--default-user"),
        ("set", "producer_byte_rate=1", "--user", user, "--ip", "192.0.2.1"),
    ):
        assert peer.run("quotas", *arguments, code=2).stderr.startswith("seqgate: ")
