"""The scenarios by theme. Importing this package fills the table of `tests.compat.differential.scenario`."""

from __future__ import annotations

from tests.compat.differential.scenarios import (
    configs,
    consumer_groups,
    fetch,
    frames,
    group_admin,
    group_configs,
    group_connections,
    group_rebalance,
    groups,
    init_producer_id,
    list_offsets,
    metadata,
    offset_delete,
    offsets,
    produce,
    sequence,
    topics,
)

__all__ = [
    "configs",
    "consumer_groups",
    "fetch",
    "frames",
    "group_admin",
    "group_configs",
    "group_connections",
    "group_rebalance",
    "groups",
    "init_producer_id",
    "list_offsets",
    "metadata",
    "offset_delete",
    "offsets",
    "produce",
    "sequence",
    "topics",
]
