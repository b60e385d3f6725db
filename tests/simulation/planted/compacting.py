"""Mistakes in compaction."""

from __future__ import annotations

from typing import Any

from seqgate.log.compaction.cleaner import CleanedTransactions, KeptRecords
from tests.simulation.planted.fault import Change, fault_in


@fault_in("compaction")
def compaction_takes_the_last_value() -> list[Change]:
    """compaction removes the newest record of a key too: <= instead of <"""

    def stays(self: KeptRecords, record: Any, horizon_ms: int | None) -> bool:
        if record.offset > self.offset_map.latest_offset:
            return True
        return record.key is not None and record.offset > self.offset_map.get(record.key)

    return [(KeptRecords, "_stays", stays)]


@fault_in("compaction")
def compaction_counts_aborted_records() -> list[Change]:
    """a record of an aborted transaction replaces an earlier committed record with the same key"""
    return [(CleanedTransactions, "is_aborted", lambda *_, **__: False)]
