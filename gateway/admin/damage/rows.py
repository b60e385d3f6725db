"""The rows of damaged ranges."""

from __future__ import annotations

from seqgate.gateway.admin.damage.messages import CutRow, DamagedRow
from seqgate.log import CutBytes, DamagedRange


def damaged_row(topic: str, partition: int, found: DamagedRange) -> DamagedRow:
    """Return the row of a damaged range."""
    return DamagedRow(
        topic=topic,
        partition=partition,
        first_offset=found.first_offset,
        end_offset=found.end_offset,
        offsets=found.offsets,
        file=f"{topic}-{partition}/{found.segment_base_offset:020d}.log",
        position=found.position,
        size_bytes=found.size_bytes,
        reason=found.reason,
        undecided_from=None if found.undecided_from < 0 else found.undecided_from,
    )


def cut_row(topic: str, partition: int, found: CutBytes) -> CutRow:
    """Return the row of a file of cut bytes."""
    return CutRow(
        topic=topic,
        partition=partition,
        records=found.records,
        first_offset=found.first_offset,
        last_offset=found.last_offset,
        file=f"{topic}-{partition}/{found.file_name}",
        size_bytes=found.size_bytes,
    )
