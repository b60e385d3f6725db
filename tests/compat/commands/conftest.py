"""Fixtures for `seqgate` commands with `--bootstrap`, whose output is the same for a gateway and for Apache
Kafka.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.gateway_cluster import await_true
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_peer import KafkaPeer
from tests.system.commands.conftest import Outcome, seqgate

PEERS = ("Seqgate", "Apache Kafka")
CHANGES = frozenset(("create", "alter", "delete", "set", "unset"))


@dataclass(frozen=True)
class Peer:
    """A gateway or Apache Kafka, to which commands connect."""

    name: str
    bootstrap: str

    def run(self, *arguments: str, code: int | None = 0, stdin: bytes | None = None) -> Outcome:
        """Run a command with this cluster as `--bootstrap`. Return when a change that it made can be read."""
        done = seqgate(*arguments, "--bootstrap", self.bootstrap, code=code, stdin=stdin)
        if self.name != PEERS[0] and done.code == 0 and CHANGES.intersection(arguments[1:2]):
            self._await_its_brokers()
        return done

    def json(self, *arguments: str, code: int = 0, stdin: bytes | None = None) -> Any:
        """Run a command with `--json`; return the document that it prints."""
        return self.run(*arguments, "--json", code=code, stdin=stdin).document

    def _await_its_brokers(self) -> None:
        # The controller of Apache Kafka answers before its brokers know of a change. They learn changes in
        # order: the one before this marker is known when the marker is.
        marker = ("group", f"marker-{uuid.uuid4().hex[:8]}")
        told = "--bootstrap", self.bootstrap
        seqgate("configs", "set", *marker, "consumer.session.timeout.ms=50000", *told)
        await_true(
            lambda: bool(seqgate("configs", "get", *marker, "--json", *told).document["configs"]),
            "the broker knows of the last change",
        )


@pytest.fixture(params=PEERS)
def peer(request: pytest.FixtureRequest) -> Peer:
    if request.param == PEERS[0]:
        gateway: GatewayProcess = request.getfixturevalue("shared_gateway")
        return Peer(PEERS[0], gateway.bootstrap)
    kafka: KafkaPeer = request.getfixturevalue("kafka")
    return Peer(PEERS[1], kafka.bootstrap)


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """Return a function that appends a random part to a name, so that no two tests share a topic."""
    return lambda name: f"{name}-{uuid.uuid4().hex[:8]}"
