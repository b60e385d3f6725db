"""The requests of the test control: a method, a path with names in braces, and the function that answers."""

from __future__ import annotations

import itertools
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypeVar
from urllib.parse import unquote

import msgspec

from seqgate.gateway.testing.broker import BrokerThread, NotNow
from seqgate.gateway.testing.control.faults_command import read, shown
from seqgate.gateway.testing.differences import explain_differences
from seqgate.gateway.testing.faults import Fault, Faults, Kind
from seqgate.gateway.testing.stored import StoredRecord

T = TypeVar("T")

# The faults that were ordered, found again by number.


class Order(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A fault as a program orders it. `FAULTS` says which of these options each fault takes."""

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
    """Return the arguments of an order, without those for which the method of the fault has a default. Raises
    ValueError for fields that the fault has not, or lacks.
    """
    names = FAULTS[order.fault]
    known = {"fault", *names}
    for field in msgspec.structs.fields(order):
        if field.name not in known and getattr(order, field.name) != field.default:
            raise ValueError(f"{order.fault} has no field {field.name!r}; it has {', '.join(sorted(known))}")
    found = {name: value for name in names if (value := getattr(order, name)) is not None}
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


class Numbered(msgspec.Struct, frozen=True):
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

    def rows(self) -> list[dict[str, Any]]:
        """Return the faults in the order in which they were ordered, those that have ended included."""
        return [each.as_row() for each in self._all.values()]

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

    def end_all(self) -> list[dict[str, Any]]:
        """End and remove all faults; return them as they were."""
        rows = self.rows()
        for each in self._all.values():
            each.repair()
        self._all.clear()
        return rows


# The requests, and their answers.


class NewTopic(msgspec.Struct, forbid_unknown_fields=True):
    """A topic to create."""

    name: str
    partitions: int = 1
    configs: dict[str, str] = {}


class Advance(msgspec.Struct, forbid_unknown_fields=True):
    """A time by which to move the clock."""

    days: float = 0
    hours: float = 0
    minutes: float = 0
    seconds: float = 0
    milliseconds: float = 0


class Restart(msgspec.Struct, forbid_unknown_fields=True):
    """The way in which the broker ends before it starts again."""

    after: Literal["stop", "kill", "power_cut"] = "stop"


class Expected(msgspec.Struct, forbid_unknown_fields=True):
    """The values of a topic in the order in which they were sent."""

    values: list[Any]


@dataclass(frozen=True, slots=True)
class Asked:
    broker: BrokerThread
    orders: Orders
    names: Sequence[str]
    body: bytes

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def number(self) -> int:
        """The first name in the path, which must be a number. Raises LookupError."""
        if not self.name.isdecimal():
            raise LookupError(f"{self.name!r} is no number")
        return int(self.name)

    def read(self, kind: type[T]) -> T:
        """Return the body. Raises ValueError."""
        return msgspec.json.decode(self.body or b"{}", type=kind)


@dataclass(frozen=True, slots=True)
class Route:
    """One kind of request; `body` is the type of its JSON. `answer` runs in a thread that may wait."""

    method: str
    path: str
    does: str
    answer: Callable[[Asked], Any]
    body: type[Any] | None = None

    def match(self, method: str, path: str) -> list[str] | None:
        """Return the names in the path of a request; None for a request of another route."""
        own, given = self.path.split("/"), path.split("/")
        if method != self.method or len(own) != len(given):
            return None
        names = []
        for mine, other in zip(own, given, strict=True):
            if mine.startswith("{"):
                names.append(unquote(other))
            elif mine != other:
                return None
        return names


ROUTES: Final[list[Route]] = []
Answer = Callable[[Asked], Any]


def _route(method: str, path: str, body: type[Any] | None = None) -> Callable[[Answer], Answer]:
    """Add a route that a function answers; its docstring says what the request does."""

    def add(answer: Answer) -> Answer:
        ROUTES.append(Route(method, path, " ".join((answer.__doc__ or "").split()), answer, body))
        return answer

    return add


@_route("GET", "/broker")
def _broker_state(asked: Asked) -> Any:
    """Return the address for clients, the id of the process, and whether the broker runs."""
    return {"bootstrap": asked.broker.advertised, "pid": os.getpid(), "running": asked.broker.is_running}


@_route("POST", "/reset")
def _reset(asked: Asked) -> Any:
    """Begin anew: no topics, groups, producers, transactions or faults, and the time of day. The broker keeps
    its address.
    """
    asked.orders.end_all()
    asked.broker.reset()
    return _broker_state(asked)


@_route("POST", "/stop")
def _stop(asked: Asked) -> Any:
    """Stop the broker cleanly. The test control still answers."""
    asked.broker.stop()
    return _broker_state(asked)


@_route("POST", "/start")
def _start(asked: Asked) -> Any:
    """Start a broker that is stopped, with its data, at the same address."""
    if asked.broker.is_running:
        raise NotNow("the broker runs already; `seqgate faults stop` stops it")
    asked.broker.start()
    return _broker_state(asked)


@_route("POST", "/restart", Restart)
def _restart(asked: Asked) -> Any:
    """End the broker, and start it with its data at the same address. Faults stay."""
    ends: Mapping[str, Callable[[], None]] = {
        "stop": asked.broker.stop,
        "kill": asked.broker.kill,
        "power_cut": asked.broker.power_cut,
    }
    ends[asked.read(Restart).after]()
    return _start(asked)


@_route("POST", "/faults", Order)
def _order_fault(asked: Asked) -> Any:
    """Order a fault."""
    return asked.orders.place(asked.read(Order)).as_row()


@_route("GET", "/faults")
def _faults(asked: Asked) -> Any:
    """Return all faults, and how often each has struck."""
    return asked.orders.rows()


@_route("GET", "/faults/{id}")
def _fault(asked: Asked) -> Any:
    """Return a fault, and how often it has struck."""
    return asked.orders.get(asked.number).as_row()


@_route("DELETE", "/faults/{id}")
def _end_fault(asked: Asked) -> Any:
    """End a fault, and repair what it broke."""
    found = asked.orders.get(asked.number)
    found.repair()
    return found.as_row()


@_route("DELETE", "/faults")
def _end_all_faults(asked: Asked) -> Any:
    """End and remove all faults; return them as they were."""
    return asked.orders.end_all()


@_route("POST", "/clock", Advance)
def _advance_clock(asked: Asked) -> Any:
    """Move the broker's clock and timers forward."""
    try:
        asked.broker.clock.advance(**msgspec.structs.asdict(asked.read(Advance)))
    except OverflowError:
        raise ValueError(f"the clock can't move by more than {timedelta.max}") from None
    return {"ahead_seconds": asked.broker.machine.ahead_s}


@_route("GET", "/topics")
def _topics(asked: Asked) -> Any:
    """Return the names of the topics."""
    return asked.broker.topics()


@_route("POST", "/topics", NewTopic)
def _create_topic(asked: Asked) -> Any:
    """Create a topic."""
    new = asked.read(NewTopic)
    asked.broker.create_topic(new.name, new.partitions, new.configs)
    return msgspec.to_builtins(new)


@_route("GET", "/topics/{topic}/records")
def _records(asked: Asked) -> Any:
    """Return the committed records of a topic."""
    return [record_row(record) for record in asked.broker.records(asked.name)]


@_route("GET", "/topics/{topic}/producers")
def _producers(asked: Asked) -> Any:
    """Return the producers that a topic tracks."""
    return [row._asdict() for row in asked.broker.producers(asked.name)]


@_route("POST", "/topics/{topic}/exactly-once", Expected)
def _compare_with_sent(asked: Asked) -> Any:
    """Compare a topic with the values that were sent: lost, doubled, unexpected, reordered."""
    expected = [read(value) for value in asked.read(Expected).values]
    complaint = explain_differences(asked.broker.records(asked.name), expected)
    return {"exactly_once": complaint is None, "complaint": complaint}


@_route("GET", "/groups")
def _groups(asked: Asked) -> Any:
    """Return the state of each group."""
    return asked.broker.groups()


@_route("POST", "/producers/{id}/expire")
def _expire(asked: Asked) -> Any:
    """Expire a producer in all partitions."""
    return {"partitions": asked.broker.faults.expire_producer(asked.number)}


@_route("POST", "/transactional-ids/{id}/fence")
def _fence(asked: Asked) -> Any:
    """Fence the producer of a transactional id."""
    asked.broker.faults.fence(asked.name)
    return {"transactional_id": asked.name}


@_route("POST", "/kill")
def _kill_process(_: Asked) -> Any:
    """Kill the process, as kill -9 does. There is no answer."""
    os.kill(os.getpid(), signal.SIGKILL)


@_route("POST", "/power-cut")
def _power_cut_process(asked: Asked) -> Any:
    """Kill the process and lose all records that were not flushed. There is no answer."""
    asked.broker.power_cut()
    os.kill(os.getpid(), signal.SIGKILL)


# The description of the test control for programs that generate clients: OpenAPI 3.1.


def description() -> dict[str, Any]:
    kinds = sorted({route.body for route in ROUTES if route.body is not None}, key=lambda kind: kind.__name__)
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas["Order"]["properties"]["fault"]["enum"] = [*FAULTS]
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Seqgate test control",
            "version": "1",
            "description": "Lets a broker fail on purpose, moves its clock, and looks inside. For tests "
            "only.",
        },
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(route: Route) -> dict[str, Any]:
    words = [word for word in re.split(r"[/{}-]", route.path) if word]
    found: dict[str, Any] = {
        "operationId": "_".join([route.method.lower(), *words]),
        "summary": route.does,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"{(\w+)}", route.path)
        ],
        "responses": {
            "200": {"description": "The answer.", "content": {"application/json": {}}},
            "400": {"description": 'The request is wrong: {"error": the sentence that says why}.'},
            "404": {"description": "What the path names does not exist."},
        },
    }
    if route.body is not None:
        schema = {"$ref": f"#/components/schemas/{route.body.__name__}"}
        found["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return found


# Records in JSON.


def record_row(record: StoredRecord) -> dict[str, Any]:
    return {
        **record._asdict(),
        "key": shown(record.key),
        "value": shown(record.value),
        "headers": [{"name": name, "value": shown(value)} for name, value in record.headers],
    }


def read_record(row: dict[str, Any]) -> StoredRecord:
    """Return the record of a row that `record_row` made."""
    headers = tuple((each["name"], read(each["value"])) for each in row["headers"])
    return StoredRecord(**{**row, "key": read(row["key"]), "value": read(row["value"]), "headers": headers})
