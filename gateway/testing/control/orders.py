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


Make = Callable[[Faults, Order], Fault]


def _chosen(order: Order, *names: str) -> dict[str, Any]:
    """Return what the order says about the requests. Raises ValueError for fields that the fault has not."""
    known = {"fault", *names}
    for field in msgspec.structs.fields(order):
        if field.name not in known and getattr(order, field.name) != field.default:
            raise ValueError(f"{order.fault} has no field {field.name!r}; it has {', '.join(sorted(known))}")
    found = {name: getattr(order, name) for name in names}
    if found.get("times", 1) is None:
        del found["times"]
    return found


def _required(order: Order, name: str) -> Any:
    value = getattr(order, name)
    if value is None:
        raise ValueError(f"{order.fault} needs the field {name!r}")
    return value


_ANY: Final = ("api", "topic", "client", "times", "after")


def _error(faults: Faults, order: Order) -> Fault:
    chosen = _chosen(order, *_ANY, "code", "carries_out", "milliseconds")
    return faults.error(_required(order, "code"), **{k: v for k, v in chosen.items() if k != "code"})


def _script(faults: Faults, order: Order) -> Fault:
    chosen = _chosen(order, "api", "topic", "client", "times", "rate", "seed", "kinds")
    seed, names = _required(order, "seed"), chosen.pop("kinds")
    del chosen["seed"]
    return faults.script(seed, kinds=None if names is None else [_kind(name) for name in names], **chosen)


def _kind(name: str) -> Kind:
    """Return the kind of fault with a name such as drop_answer. Raises ValueError."""
    if name.upper() not in Kind.__members__:
        raise ValueError(f"{name!r} is no kind of fault; the kinds are {', '.join(Kind.__members__).lower()}")
    return Kind[name.upper()]


def _coordinator_moves(faults: Faults, order: Order) -> Fault:
    chosen = _chosen(order, "api", "times", "after")
    return faults.coordinator_moves(**{k: v for k, v in chosen.items() if v is not None})


REQUEST_FAULTS: Final[Mapping[str, Make]] = {
    "drop_answer": lambda faults, order: faults.drop_answer(**_chosen(order, *_ANY, "closes")),
    "close": lambda faults, order: faults.close(**_chosen(order, *_ANY)),
    "error": _error,
    "delay": lambda faults, order: faults.delay(**_chosen(order, *_ANY, "milliseconds")),
    "throttle": lambda faults, order: faults.throttle(**_chosen(order, *_ANY, "milliseconds")),
    "corrupt": lambda faults, order: faults.corrupt(**_chosen(order, "topic", "client", "times", "after")),
    "not_leader": lambda faults, order: faults.not_leader(**_chosen(order, "topic", "times", "after")),
    "coordinator_moves": _coordinator_moves,
    "watch": lambda faults, order: faults.watch(**_chosen(order, "api", "topic", "client")),
    "script": _script,
}
PART_FAULTS: Final = ("partition_offline", "disk_full")


@dataclass(frozen=True, slots=True)
class Numbered:
    """A fault that was ordered. `repair` ends the fault of a part, and repairs the part."""

    number: int
    name: str
    fault: Fault
    repair: Callable[[], None]

    def as_row(self) -> dict[str, Any]:
        """Return the fault for an answer."""
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
    """The faults that programs have ordered from one broker. Call one method at a time, from another thread
    than the broker's.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._numbers = itertools.count(1)
        self._all: dict[int, Numbered] = {}

    def all(self) -> list[Numbered]:
        """Return the faults in the order in which they were ordered, those that have ended included."""
        return list(self._all.values())

    def get(self, number: int) -> Numbered:
        """Return a fault. Raises LookupError."""
        if number not in self._all:
            raise LookupError(f"there is no fault {number}")
        return self._all[number]

    def place(self, order: Order) -> Numbered:
        """Carry an order out. Raises ValueError, LookupError; NotNow for a partition of a broker that does
        not run.
        """
        broken = ExitStack()
        if order.fault == "partition_offline":
            topic = _required(order, "topic")
            _chosen(order, "topic", "partition")
            fault = broken.enter_context(self._faults.partition_offline(topic, order.partition))
        elif order.fault == "disk_full":
            _chosen(order)
            fault = broken.enter_context(self._faults.disk_full())
        elif order.fault in REQUEST_FAULTS:
            fault = REQUEST_FAULTS[order.fault](self._faults, order)
        else:
            names = ", ".join([*REQUEST_FAULTS, *PART_FAULTS])
            raise ValueError(f"{order.fault!r} is no fault; the faults are {names}")
        placed = Numbered(next(self._numbers), order.fault, fault, broken.close)
        self._all[placed.number] = placed
        return placed

    def end(self, number: int) -> Numbered:
        """End a fault, and repair what it broke. Raises LookupError."""
        found = self.get(number)
        found.fault.end()
        found.repair()
        return found

    def end_all(self) -> None:
        """End all faults, and forget them."""
        for number in self._all:
            self.end(number)
        self._all.clear()
