"""The state of a log for which retention has nothing to do for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from log.config import LogConfig
    from log.segments.segment import Segment


class Quiet(NamedTuple):
    """A state of a log in which neither retention nor `roll_by_time` has anything to do until a time: with the same state, what is due at
    one time is due at any later one.
    """

    until_ms: int
    """The first time (ms) at which something may be due."""
    size_bytes: int
    log_start_offset: int
    active: Segment
    config: LogConfig
