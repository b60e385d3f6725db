"""Searches for damage in a segment that the start did not check, because the last stop was clean."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from seqgate.log.segments.damage import DamagedRange
from seqgate.log.segments.scan import SegmentScan

if TYPE_CHECKING:
    from seqgate.log.segments.segment import Segment, SegmentEnvironment

_logger = logging.getLogger(__name__)


def examine(environment: SegmentEnvironment, segment: Segment, end_offset: int) -> bool:
    """Check all batches of a durable segment that ends at `end_offset`. Return whether the check found new
    damage.

    The check waits for the disk, once per damaged segment: starting over after each part that is not cached
    would take longer. Raises OSError, IncompatibleFormat.
    """
    scan = SegmentScan(
        segment.read_at,
        segment.file.path,
        segment.size_bytes,
        segment.base_offset,
        next_offset=segment.base_offset,
        kept_below=end_offset,
        limit=end_offset,
    )
    known = {found.position for found in segment.damage}
    with environment.storage.may_wait():
        new = [part for part in scan if isinstance(part, DamagedRange) and part.position not in known]
    if not new:
        return False
    for found in new:
        report(segment, found)
    segment.damage = tuple(sorted((*segment.damage, *new)))
    register = environment.damage
    others = [
        found for found in register.of(segment.directory) if found.segment_base_offset != segment.base_offset
    ]
    register.note(segment.directory, sorted((*others, *segment.damage)), is_durable=False)
    return True


def report(segment: Segment, found: DamagedRange) -> None:
    """Log a damaged range."""
    _logger.error("%s is damaged: %s; the bytes are kept", segment.file.path, found)
