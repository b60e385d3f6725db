"""The table of `seqgate status --bootstrap`: what is wrong has a line in capitals."""

from __future__ import annotations

from typing import Any

from seqgate.gateway.admin.status import BrokerStatus, ClusterStatus, LogDir, TroubledPartition, cluster_rows

DIRECTORY = LogDir("/data", None, 10, 1_000, 900)
BROKER = BrokerStatus(1, "one:9092", "r1", None, [DIRECTORY], {0: (3, 13), 1: (4, 18)})


def rows(**more: Any) -> list[tuple[str, str]]:
    fields: dict[str, Any] = {
        "cluster_id": "c",
        "controller": 1,
        "brokers": [BROKER],
        "topics": 3,
        "internal_topics": 1,
        "partitions": 9,
        "offline": [],
        "under_replicated": [],
        "features": {"metadata.version": 29},
        "is_well": True,
    }
    return list(cluster_rows(ClusterStatus(**{**fields, **more})))


def wrong(**more: Any) -> list[tuple[str, str]]:
    return [row for row in rows(**more) if row[0].isupper()]


def test_all_is_well() -> None:
    assert rows() == [
        ("cluster", "c"),
        ("controller", "1"),
        ("topics, partitions", "3 (1 internal), 9"),
        ("features", "metadata.version 29"),
        ("broker 1", "one:9092, rack r1"),
        ("  api versions", "2 APIs: Produce 3–13, Fetch 4–18"),
        ("  log directory", "/data: 10 B of partitions, 900 B of 1000 B free"),
    ]
    assert wrong() == []


def test_what_is_wrong() -> None:
    gone = BrokerStatus(2, "two:9092", None, "the broker at two:9092 did not answer: refused", [], {})
    sick = BrokerStatus(
        3, "three:9092", None, None, [LogDir("/bad", "KAFKA_STORAGE_ERROR", 0, None, None)], {}
    )
    lost = TroubledPartition("t", 0, None, [2], [])
    behind = TroubledPartition("t", 1, 1, [1, 2], [1])
    assert wrong(
        controller=None, brokers=[BROKER, gone, sick], offline=[lost], under_replicated=[behind]
    ) == [
        ("BROKER", "2: the broker at two:9092 did not answer: refused"),
        ("LOG DIRECTORY", "/bad of broker 3: KAFKA_STORAGE_ERROR"),
        ("CONTROLLER", "the cluster has none: topics can be neither created nor altered"),
        ("OFFLINE", "t-0: leader -, replicas 2, in sync -"),
        ("UNDER-REPLICATED", "t-1: leader 1, replicas 1, 2, in sync 1"),
    ]


def test_many_partitions_are_cut() -> None:
    many = [TroubledPartition("t", index, None, [1], []) for index in range(25)]
    listed = wrong(offline=many)
    assert len(listed) == 21
    assert listed[-1] == ("OFFLINE", "and 5 more; --json lists all")
