"""Faults that a program orders by name, and finds again by number."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from seqgate.gateway.testing.faults import Fault, Faults, Kind


class Order(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a program may say about a fault; docs/testing.md says which fault needs what."""

    fault: str
    api: str | None = None
    topic: str | None = None
    client: str | None = None
    times: int | None = None
    after: int = 0
    milliseconds: int = 0
    code: str | None = None
    closes: bool = True
    carries_out: bool = False
    seed: int | None = None
    rate: float = 0.1
    kinds: Sequence[str] | None = None
    partition: int = 0


_ANY: Final = ("api", "topic", "client", "times", "after")
FAULTS: Final[Mapping[str, tuple[str, ...]]] = {
    "drop_answer": (*_ANY, "closes"),
    "close": _ANY,
    "error": (*_ANY, "code", "carries_out", "milliseconds"),
    "delay": (*_ANY, "milliseconds"),
    "throttle": (*_ANY, "milliseconds"),
    "corrupt": ("topic", "client", "times", "after"),
    "not_leader": ("topic", "times", "after"),
    "coordinator_moves": ("api", "times", "after"),
    "watch": ("api", "topic", "client"),
    "script": ("api", "topic", "client", "times", "rate", "seed", "kinds"),
    "partition_offline": ("topic", "partition"),
    "disk_full": (),
}
"""The fields of each fault, which are the arguments of the method of its name."""
_REQUIRED: Final = {"error": "code", "script": "seed", "partition_offline": "topic"}


def _chosen(order: Order) -> dict[str, Any]:
    """Return the arguments of an order. Raises ValueError for fields that the fault has not, or lacks."""
    names = FAULTS[order.fault]
    known = {"fault", *names}
    for field in msgspec.structs.fields(order):
        if field.name not in known and getattr(order, field.name) != field.default:
            raise ValueError(f"{order.fault} has no field {field.name!r}; it has {', '.join(sorted(known))}")
    found = {name: getattr(order, name) for name in names if getattr(order, name) is not None}
    required = _REQUIRED.get(order.fault)
    if required is not None and required not in found:
        raise ValueError(f"{order.fault} needs the field {required!r}")
    if "kinds" in found:
        found["kinds"] = [_kind(name) for name in found["kinds"]]
    return found


def _kind(name: str) -> Kind:
    """Return the kind of fault with a name such as drop_answer. Raises ValueError."""
    if name.upper() not in Kind.__members__:
        raise ValueError(f"{name!r} is no kind of fault; the kinds are {', '.join(Kind.__members__).lower()}")
    return Kind[name.upper()]


@dataclass(frozen=True, slots=True)
class Numbered:
    """A fault that was ordered. `repair` ends it, and repairs what it broke."""

    number: int
    name: str
    fault: Fault
    repair: Callable[[], None]

    def as_row(self) -> dict[str, Any]:
        return {
            "id": self.number,
            "fault": self.name,
            "text": str(self.fault),
            "seen": self.fault.seen,
            "struck": self.fault.struck,
            "effects": dict(self.fault.effects),
            "ended": self.fault.has_ended,
        }


class Orders:
    """The faults that programs ordered. Call one method at a time, outside of the broker's thread."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._numbers = itertools.count(1)
        self._all: dict[int, Numbered] = {}

    def all(self) -> list[Numbered]:
        """Return the faults in the order in which they were ordered, those that have ended included."""
        return list(self._all.values())

    def get(self, number: int) -> Numbered:
        if number not in self._all:
            raise LookupError(f"there is no fault {number}")
        return self._all[number]

    def place(self, order: Order) -> Numbered:
        """Carry an order out. Raises ValueError, LookupError; NotNow if the broker must run."""
        if order.fault not in FAULTS:
            raise ValueError(f"{order.fault!r} is no fault; the faults are {', '.join(FAULTS)}")
        broken = ExitStack()
        fault = broken.enter_context(getattr(self._faults, order.fault)(**_chosen(order)))
        placed = Numbered(next(self._numbers), order.fault, fault, broken.close)
        self._all[placed.number] = placed
        return placed

    def end(self, number: int) -> Numbered:
        """End a fault, and repair what it broke. Raises LookupError."""
        found = self.get(number)
        found.repair()
        return found

    def end_all(self) -> None:
        for number in self._all:
            self.end(number)
        self._all.clear()
