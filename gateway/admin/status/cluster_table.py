"""The table of `seqgate status --bootstrap`: what is in order first, then a line for each thing that is wrong."""

from __future__ import annotations

from typing import Final

from gateway.admin.printing import UNKNOWN, count, shown
from gateway.admin.status.cluster_messages import Broker, ClusterStatus, LogDir, TroubledPartition

_SHOWN_APIS: Final = ((0, "Produce"), (1, "Fetch"), (3, "Metadata"))
_SHOWN_PARTITIONS: Final = 20


def cluster_rows(answer: ClusterStatus) -> list[tuple[str, str]]:
    """Return the rows of the table."""
    rows = [
        ("cluster", answer.cluster_id),
        ("controller", "-" if answer.controller is None else str(answer.controller)),
        (
            "topics, partitions",
            f"{count(answer.topics)} ({count(answer.internal_topics)} internal), {count(answer.partitions)}",
        ),
        ("features", ", ".join(f"{name} {level}" for name, level in answer.features.items()) or "-"),
    ]
    for broker in answer.brokers:
        rows += _broker_rows(broker)
    if answer.controller is None:
        rows.append(("CONTROLLER", "the cluster has none: topics can be neither created nor altered"))
    rows += _partition_rows("OFFLINE", answer.offline)
    rows += _partition_rows("UNDER-REPLICATED", answer.under_replicated)
    return rows


def _broker_rows(broker: Broker) -> list[tuple[str, str]]:
    rack = "" if broker.rack is None else f", rack {shown(broker.rack)}"
    rows = [(f"broker {broker.node_id}", broker.address + rack)]
    if broker.error is not None:
        return [*rows, ("BROKER", f"{broker.node_id}: {broker.error}")]
    versions = [
        f"{name} {first}–{last}"
        for key, name in _SHOWN_APIS
        for first, last in [broker.apis.get(key, (0, -1))]
        if last >= 0
    ]
    rows.append(("  api versions", f"{len(broker.apis)} APIs: {', '.join(versions)}"))
    rows += [("  log directory", _directory(directory)) for directory in broker.log_dirs]
    rows += [
        ("LOG DIRECTORY", f"{shown(directory.path)} of broker {broker.node_id}: {directory.error}")
        for directory in broker.log_dirs
        if directory.error is not None
    ]
    return rows


def _directory(directory: LogDir) -> str:
    total = UNKNOWN if directory.total_bytes is None else count(directory.total_bytes)
    free = UNKNOWN if directory.free_bytes is None else count(directory.free_bytes)
    return (
        f"{shown(directory.path)}: {count(directory.used_bytes)} bytes of partitions, {free} of {total} free"
    )


def _partition_rows(heading: str, troubled: list[TroubledPartition]) -> list[tuple[str, str]]:
    rows = [(heading, _trouble(row)) for row in troubled[:_SHOWN_PARTITIONS]]
    if len(troubled) > _SHOWN_PARTITIONS:
        rows.append((heading, f"and {count(len(troubled) - _SHOWN_PARTITIONS)} more; --json lists all"))
    return rows


def _trouble(row: TroubledPartition) -> str:
    leader = "-" if row.leader is None else row.leader
    replicas = f"replicas {_nodes(row.replicas)}, in sync {_nodes(row.in_sync)}"
    return f"{row.topic}-{row.partition}: leader {leader}, {replicas}"


def _nodes(node_ids: list[int]) -> str:
    return ", ".join(map(str, node_ids)) or "-"
