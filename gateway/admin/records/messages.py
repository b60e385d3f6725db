"""The JSON output of `seqgate produce --json`."""

from __future__ import annotations

import msgspec


class ProducedPartition(msgspec.Struct, frozen=True):
    """The records that are stored in one partition, and the offsets of the first and the last."""

    partition: int
    first_offset: int
    last_offset: int
    records: int


class ProducedReport(msgspec.Struct, frozen=True):
    """The records that are stored in a topic."""

    topic: str
    records: int
    partitions: list[ProducedPartition]
