"""The state of a cluster over the Kafka protocol: what counts as wrong."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.admin.remote import broker, operations
from seqgate.gateway.admin.remote.broker import BrokerAddress
from seqgate.gateway.admin.remote.cluster import Cluster
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.status import ClusterStatus, cluster_status

LOG_DIRS = 35
SILENT = 9
"""The port of a broker that does not answer."""


@dataclass
class FakeCluster:
    """Answers as two brokers do that share a topic of one partition."""

    controller_id: int = 1
    leader_id: int = 1
    in_sync: tuple[int, ...] = (1, 2)
    directory_error: ErrorCode = ErrorCode.none
    listing_error: ErrorCode = ErrorCode.none
    ports: tuple[int, ...] = (1, 2)
    asked: list[Any] = field(default_factory=list)

    def ask(self, address: tuple[str, int], request: Any, **_: Any) -> Any:
        self.asked.append(request)
        if address[1] == SILENT:
            raise ControlError("the broker at h:9 did not answer: connection refused")
        name = type(request).__name__
        return {
            "MetadataRequest": self._metadata,
            "ApiVersionsRequest": self._versions,
            "DescribeClusterRequest": self._tells_nothing,
        }.get(name, self._log_dirs)()

    def _metadata(self) -> Any:
        partition = SimpleNamespace(
            partition_index=0, leader_id=self.leader_id, replica_nodes=(1, 2), isr_nodes=self.in_sync
        )
        topic = SimpleNamespace(name="t", is_internal=False, partitions=(partition,))
        brokers = tuple(
            SimpleNamespace(node_id=number, host="h", port=port, rack="")
            for number, port in enumerate(self.ports, 1)
        )
        return SimpleNamespace(
            brokers=brokers, topics=(topic,), cluster_id="c", controller_id=self.controller_id
        )

    def _versions(self) -> Any:
        api = SimpleNamespace(api_key=0, min_version=3, max_version=13)
        feature = SimpleNamespace(name="metadata.version", max_version_level=29)
        return SimpleNamespace(api_keys=(api,), finalized_features=(feature,))

    def _tells_nothing(self) -> Any:
        return SimpleNamespace(answer=None)

    def _log_dirs(self) -> Any:
        rows = (SimpleNamespace(partition_size=5), SimpleNamespace(partition_size=6))
        directory = SimpleNamespace(
            log_dir="/data",
            error_code=self.directory_error,
            topics=(SimpleNamespace(partitions=rows),),
            total_bytes=100,
            usable_bytes=-1,
        )
        return SimpleNamespace(error_code=self.listing_error, results=(directory,))


def status(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> ClusterStatus:
    for module in (broker, operations):
        monkeypatch.setattr(module, "ask_broker", fake.ask)
    for name, asked in (("metadata", "MetadataRequest"), ("api_versions", "ApiVersionsRequest")):
        request = _Named(asked)()
        monkeypatch.setattr(broker, name, lambda address, _, request=request: fake.ask(address, request))
    return cluster_status(Cluster(("h:1",), BrokerAddress("h", 1), {LOG_DIRS: 4}))


def _Named(name: str) -> type[Any]:  # noqa: N802 - returns a class
    return type(name, (), {})


def test_brokers_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answers only when the other is asked, too."""
    both = threading.Barrier(2, timeout=60.0)

    class Meeting(FakeCluster):
        def _log_dirs(self) -> Any:
            both.wait()
            return super()._log_dirs()

    assert status(Meeting(), monkeypatch).is_well


def test_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    found = status(FakeCluster(), monkeypatch)
    assert found.is_well
    assert (found.controller, found.topics, found.partitions) == (1, 1, 1)
    assert found.features == {"metadata.version": 29}
    first, second = found.brokers
    assert (first.address, first.rack, first.apis) == ("h:1", None, {0: (3, 13)})
    (directory,) = second.log_dirs
    assert (directory.used_bytes, directory.total_bytes, directory.free_bytes) == (11, 100, None)


@pytest.mark.parametrize(
    ("fake", "offline", "behind"),
    [
        (FakeCluster(controller_id=-1), [], []),
        (FakeCluster(leader_id=-1, in_sync=()), [("t", 0)], []),
        (FakeCluster(in_sync=(1,)), [], [("t", 0)]),
        (FakeCluster(directory_error=ErrorCode.kafka_storage_error), [], []),
        (FakeCluster(listing_error=ErrorCode.cluster_authorization_failed), [], []),
        (FakeCluster(ports=(1, SILENT)), [], []),
    ],
    ids=("controller", "offline", "under-replicated", "directory", "listing", "broker"),
)
def test_what_is_wrong(
    fake: FakeCluster,
    offline: list[tuple[str, int]],
    behind: list[tuple[str, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = status(fake, monkeypatch)
    assert not found.is_well
    assert [(row.topic, row.partition) for row in found.offline] == offline
    assert [(row.topic, row.partition) for row in found.under_replicated] == behind


def test_the_other_brokers_are_shown_when_one_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = status(FakeCluster(ports=(1, SILENT)), monkeypatch).brokers
    assert first.error is None
    assert (second.error, second.log_dirs) == ("the broker at h:9 did not answer: connection refused", [])
