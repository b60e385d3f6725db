"""What a damaged batch leaves unknown: which producers wrote it, and which transactions ended in it.

Where that has to be read from the log past the damage, it errs on the side of refusing. A producer of which nothing is known at or
behind the damage may not go on in its epoch, and what was open where the damage begins stays undecided to readers of committed
records, until `seqgate repair` gives the damaged batch up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from log.segments.damage import NO_TRANSACTION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from log.segments.damage import DamagedRange
    from log.segments.segment import Segment
    from seq_validator import ProducerTable


class Undecided:
    """The damaged ranges that replays of one log passed, and what was open there."""

    def __init__(self) -> None:
        """Begin before any replay."""
        self._first_offsets: dict[tuple[int, int], int] = {}
        self._unknown_producers: set[tuple[int, int]] = set()

    def passed(self, found: DamagedRange, open_from: Iterable[int]) -> None:
        """A replay passes the range while transactions are open that began at these offsets."""
        key = found.segment_base_offset, found.position
        first_offset = min(open_from, default=NO_TRANSACTION)
        earlier = self._first_offsets.get(key, NO_TRANSACTION)
        if first_offset != NO_TRANSACTION:
            self._first_offsets[key] = (
                first_offset if earlier == NO_TRANSACTION else min(earlier, first_offset)
            )

    def passed_by_producers(self, found: DamagedRange, producers: ProducerTable) -> None:
        """The replay of the producers passes the range."""
        self._unknown_producers.add((found.segment_base_offset, found.position))
        self.passed(
            found,
            (entry.current_transaction_first_offset for entry in producers if entry.has_open_transaction),
        )

    def note(self, segments: Sequence[Segment], producers: ProducerTable) -> list[DamagedRange]:
        """Mark the ranges, have the producers doubted that may have written them; return all ranges."""
        for segment in segments:
            segment.damage = tuple(self._marked(found) for found in segment.damage)
        damage = [found for segment in segments for found in segment.damage]
        for found in damage:
            if found.is_state_unknown:
                producers.doubt(found.end_offset)
        return damage

    def _marked(self, found: DamagedRange) -> DamagedRange:
        key = found.segment_base_offset, found.position
        known = [
            offset
            for offset in (found.undecided_from, self._first_offsets.get(key, NO_TRANSACTION))
            if offset != NO_TRANSACTION
        ]
        return found._replace(
            is_state_unknown=found.is_state_unknown or key in self._unknown_producers,
            undecided_from=min(known, default=NO_TRANSACTION),
        )
