"""The scenarios by theme. Importing this package fills the table of `tests.compat.differential.scenario`."""

from __future__ import annotations

from tests.compat.differential.scenarios import (
    configs,
    fetch,
    frames,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
    sequence,
    topics,
)

__all__ = [
    "configs",
    "fetch",
    "frames",
    "init_producer_id",
    "list_offsets",
    "metadata",
    "produce",
    "sequence",
    "topics",
]
