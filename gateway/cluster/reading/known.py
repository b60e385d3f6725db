"""The facts that this gateway has read about a partition of another gateway, and how long they are valid."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from gateway.cluster.parts.manifest import PartRef
from gateway.cluster.reading.contents import Bounds, Contents

CONFIRMED_FOR_S: Final = 2.0
"""How long the leader's answer counts: records that DeleteRecords has removed may be read for this time at other gateways."""
LOOKED_EVERY_S: Final = 1.0
"""The least time between two reads of a manifest for readers that have come to its end."""
FAILED_FOR_S: Final = 5.0
"""How long readers are sent to the leader after the bucket or the leader did not answer."""
POSITIONS_KEPT: Final = 32
"""Places of a partition at which readers go on. A reader whose place is dropped costs the headers of a part, of 8 MiB at most."""
NEVER: Final = float("-inf")


class Known:
    """One partition. Times are of the event loop's clock."""

    __slots__ = (
        "_confirmed_s",
        "_failed_s",
        "_positions",
        "_read_s",
        "contents",
        "has_missed",
        "is_leader_silent",
        "leader_start",
    )

    def __init__(self) -> None:
        self.contents: Contents | None = None
        """The contents by the newest manifest that was read; None before the first one."""
        self.leader_start = 0
        """The log start offset that the leader has told."""
        self.is_leader_silent = False
        """Whether the last failure was that of the leader."""
        self.has_missed = False
        """Whether a part of the newest manifest was not in the bucket: another manifest has replaced that one."""
        self._read_s = self._confirmed_s = self._failed_s = NEVER
        self._positions: OrderedDict[tuple[str, int], int] = OrderedDict()
        """The place in a part of the first batch at or after an offset."""

    def read(self, contents: Contents, now_s: float) -> None:
        """Take what a manifest tells that has come now."""
        self.contents = contents
        self._read_s = now_s

    def confirmed(self, log_start_offset: int, now_s: float) -> None:
        """Take the leader's log start offset, asked for at this time."""
        self.leader_start = max(self.leader_start, log_start_offset)
        self._confirmed_s = now_s

    def failed(self, now_s: float, *, is_leader_silent: bool = False) -> None:
        """Note that the partition can't be read here for a while."""
        self._failed_s = now_s
        self.is_leader_silent = is_leader_silent
        self.contents = None

    def is_out(self, now_s: float) -> bool:
        """Return whether the partition could not be read a short time ago."""
        return now_s < self._failed_s + FAILED_FOR_S

    def is_confirmed(self, now_s: float) -> bool:
        """Return whether the leader's last answer still counts."""
        return now_s < self._confirmed_s + CONFIRMED_FOR_S

    def may_be_behind(self, now_s: float) -> bool:
        """Return whether the bucket may have a newer manifest, and may be asked for it."""
        return now_s >= self._read_s + LOOKED_EVERY_S

    @property
    def bounds(self) -> Bounds | None:
        """The offsets that a reader is told; None while nothing is known."""
        if self.contents is None:
            return None
        _, stable, end = self.contents.bounds
        # The manifest may have a later start, which the leader tells only when it is durable.
        start = min(self.leader_start, end)
        return Bounds(start, max(start, stable), end)

    def has_deleted(self, offset: int) -> bool:
        """Return whether the record at an offset was deleted, by the leader's answer or by the manifest."""
        return self.contents is None or offset < max(self.contents.bounds.log_start, self.leader_start)

    def note_position(self, part: PartRef, offset: int, place: int) -> None:
        """Note where in a part the first batch at or after an offset is."""
        self._positions[part.name, offset] = place
        self._positions.move_to_end((part.name, offset))
        if len(self._positions) > POSITIONS_KEPT:
            self._positions.popitem(last=False)

    def position_before(self, part: PartRef, offset: int) -> int:
        """Return a place in a part at which a batch begins that is at or before the one with this offset."""
        exact = self._positions.get((part.name, offset))
        if exact is not None:
            return exact
        places = (
            place for (name, noted), place in self._positions.items() if name == part.name and noted <= offset
        )
        return max(places, default=0)
