"""Tells whether the durable end of any log has moved, so that nobody looks at every log to find that none has."""

from __future__ import annotations


class DurableEnds:
    """Counts the moves of the durable ends of all logs of a data directory. A new log counts as one."""

    __slots__ = ("moves",)

    def __init__(self) -> None:
        self.moves = 0
