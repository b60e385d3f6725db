"""Tracks what a damaged batch leaves unknown: the producers that wrote it, and the transactions that ended in it.

A replay that has to pass the damage refuses rather than guesses. A producer without a known batch at or after the damage may not
continue with its producer epoch. Transactions that were open at the damage stay undecided for readers of committed records, until
`seqgate repair` removes the damaged batch.
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
    """The damaged ranges that replays of one log passed, and the transactions that were open there."""

    def __init__(self) -> None:
        """Begin with no undecided transactions."""
        self._first_offsets: dict[tuple[int, int], int] = {}
        self._unknown_producers: set[tuple[int, int]] = set()

    def passed(self, found: DamagedRange, open_from: Iterable[int]) -> None:
        """Record that a replay passed the range while transactions with these first offsets were open."""
        key = found.segment_base_offset, found.position
        first_offset = min(open_from, default=NO_TRANSACTION)
        earlier = self._first_offsets.get(key, NO_TRANSACTION)
        if first_offset != NO_TRANSACTION:
            self._first_offsets[key] = (
                first_offset if earlier == NO_TRANSACTION else min(earlier, first_offset)
            )

    def passed_by_producers(self, found: DamagedRange, producers: ProducerTable) -> None:
        """Record that the replay of the producers passed the range."""
        self._unknown_producers.add((found.segment_base_offset, found.position))
        self.passed(
            found,
            [entry.current_transaction_first_offset for entry in producers.in_transaction()],
        )

    def note(self, segments: Sequence[Segment], producers: ProducerTable) -> list[DamagedRange]:
        """Write the findings into the segments' ranges, and mark producers that may have written there. Return all ranges."""
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
