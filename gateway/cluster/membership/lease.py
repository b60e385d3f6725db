"""The lease of a gateway: until when it may answer as the leader of its partitions.

The lease begins anew with each confirmed object of the session's log, at the time at which the object was *sent*: no seal was there
then. Another gateway takes over only after the log was silent for longer than a lease lasts on any clock, so no lease is left when
the new leader serves. Writes need no lease: after a seal no object is confirmed, however long a process was stopped.

The clock counts the time in which the machine is suspended, and is never set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

DRIFT: Final = 0.1
"""How much faster the clock of a taker may run than that of the gateway that it takes over, as a share of the time."""


def conviction_s(lease_s: float) -> float:
    """Return how long a session must be silent, on the clock of a taker, so that its lease is over on its own clock."""
    return lease_s * (1 + DRIFT)


class ConfirmedLog(Protocol):
    """The write-ahead log of the gateway's own session."""

    last_confirmed_sent_s: float
    """When the last confirmed object was sent for the first time."""


class Lease:
    """The lease of this gateway. `seconds` is the clock that the log uses, too."""

    def __init__(self, wal: ConfirmedLog, lease_s: float, seconds: Callable[[], float]) -> None:
        self._wal = wal
        self._lease_s = lease_s
        self._seconds = seconds

    def is_over(self) -> bool:
        """Whether another gateway may lead the partitions by now. Ask this before the state that is answered is read."""
        return self._seconds() >= self._wal.last_confirmed_sent_s + self._lease_s

    @property
    def left_s(self) -> float:
        """The time until the lease is over; 0 once it is."""
        return max(0.0, self._wal.last_confirmed_sent_s + self._lease_s - self._seconds())
