"""Which operation of a simulated disk fails, and how: a chosen one by its number, or any by chance."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

KINDS: Final = ("EIO", "ENOSPC", "EMFILE", "short", "cut")
"""The kinds of faults. `short` writes half of the bytes; other operations fail with ENOSPC. `cut` raises
PowerCut.
"""


class PowerCut(BaseException):
    """The process was killed, or the machine lost its power."""


@dataclass
class FaultRates:
    """The probability, from 0 to 1, that an operation of a kind fails."""

    open_eio: float = 0.0
    open_emfile: float = 0.0
    read_eio: float = 0.0
    write_eio: float = 0.0
    write_enospc: float = 0.0
    write_short: float = 0.0
    sync_eio: float = 0.0
    name_eio: float = 0.0
    """The probability for renames, deletions, new and removed directories, and syncs of directories."""
    latency: float = 0.0
    """The probability that an operation takes up to `latency_s`."""
    latency_s: float = 0.1


NO_FAULTS: Final = FaultRates()
_OF_READS: Final = frozenset({"read", "open", "list"})
_RATES: Final = {
    "open": ("open_eio", "open_emfile"),
    "create": ("open_eio", "open_emfile", "write_enospc"),
    "read": ("read_eio",),
    "list": (),
    "write": ("write_eio", "write_enospc", "write_short"),
    "truncate": ("write_eio",),
    "punch": ("write_eio",),
    "sync": ("sync_eio",),
}
_OF_NAMES: Final = ("name_eio",)


@dataclass
class Faults:
    """The faults to come.

    Operations that change something or make it durable are numbered from 1 on, reads separately.
    """

    chance: random.Random
    rates: FaultRates = field(default_factory=FaultRates)
    fail_at: int = 0
    fail_read_at: int = 0
    kind: str = "EIO"
    fail_for_ever: bool = False
    """Whether all operations after the chosen one fail as well, until `heal`."""
    is_full: bool = False
    """Whether no file can grow until `heal`."""
    only: Callable[[str, str], bool] | None = None
    """Returns whether an operation on a path may fail by chance."""
    on_cut: Callable[[], None] | None = None
    """Called before PowerCut is raised, to end the process and its disk."""
    operations: int = 0
    reads: int = 0

    def heal(self) -> None:
        """Let all further operations of the disk succeed."""
        self.fail_at = self.fail_read_at = 0
        self.is_full = False
        self.rates = FaultRates()

    def decide(self, operation: str, path: str) -> str:
        """Return the kind of fault of the next operation, "" for none."""
        if operation in _OF_READS:
            self.reads += 1
            number, chosen = self.reads, self.fail_read_at
        else:
            self.operations += 1
            number, chosen = self.operations, self.fail_at
        if chosen and (number == chosen or (self.fail_for_ever and number > chosen)):
            return self.kind
        if self.is_full and operation in {"write", "create", "mkdir"}:
            return "ENOSPC"
        return "" if self.rates == NO_FAULTS else self._by_chance(operation, path)

    def _by_chance(self, operation: str, path: str) -> str:
        if self.only is not None and not self.only(operation, path):
            return ""
        for name in _RATES.get(operation, _OF_NAMES):
            rate = getattr(self.rates, name)
            if rate and self.chance.random() < rate:
                kind = name.rpartition("_")[2]
                return kind if kind == "short" else kind.upper()
        return ""

    def latency_s(self) -> float:
        """Return how long the next operation takes."""
        rates = self.rates
        if not rates.latency or self.chance.random() >= rates.latency:
            return 0.0
        return self.chance.random() * rates.latency_s


def error(kind: str, path: str) -> OSError:
    """Return the error that a failing call raises."""
    number = {"EIO": errno.EIO, "EMFILE": errno.EMFILE}.get(kind, errno.ENOSPC)
    return OSError(number, os.strerror(number), path)
