"""The requests of the test control: a method, a path with names in braces, and the function that answers.
`command.py` has the answers to the requests that `seqgate faults` sends.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import msgspec

from seqgate.gateway.testing.broker_thread import BrokerThread
from seqgate.gateway.testing.control.command import (
    FAULTS,
    Advance,
    Expected,
    Order,
    Orders,
    Restart,
    advance_clock,
    broker_state,
    compare_with_sent,
    end_all_faults,
    end_fault,
    expire_everywhere,
    fence_id,
    order_fault,
    ordered_fault,
    ordered_faults,
    read,
    reset_broker,
    restart_broker,
    shown,
    start_broker,
    stop_broker,
)
from seqgate.gateway.testing.inside import Inside
from seqgate.gateway.testing.stored import StoredRecord

T = TypeVar("T")


class NewTopic(msgspec.Struct, forbid_unknown_fields=True):
    """A topic to create."""

    name: str
    partitions: int = 1
    configs: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Asked:
    broker: BrokerThread
    orders: Orders
    names: Sequence[str]
    body: bytes

    @property
    def inside(self) -> Inside:
        """The look into the gateway, for `run`."""
        return self.broker.inside

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine in the broker's event loop. Raises NotNow if the broker does not run."""
        return self.broker.run(work)

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


def _create_topic(asked: Asked) -> Any:
    new = asked.read(NewTopic)
    asked.run(lambda: asked.inside.create_topic(new.name, new.partitions, new.configs))
    return msgspec.to_builtins(new)


def _records(asked: Asked) -> Any:
    return [record_row(record) for record in asked.run(lambda: asked.inside.records(asked.name))]


def _producers(asked: Asked) -> Any:
    return [row._asdict() for row in asked.run(lambda: asked.inside.producers(asked.name))]


def _kill_process(_: Asked) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def _power_cut_process(asked: Asked) -> Any:
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


ROUTES: Final = (
    Route(
        "GET",
        "/broker",
        "Return the address for clients, the id of the process, and whether the broker runs.",
        broker_state,
    ),
    Route(
        "POST",
        "/reset",
        "Begin anew: no topics, groups, producers, transactions or faults, and the time of day. The broker "
        "keeps its address.",
        reset_broker,
    ),
    Route("POST", "/stop", "Stop the broker cleanly. The test control still answers.", stop_broker),
    Route(
        "POST", "/start", "Start a broker that is stopped, with its data, at the same address.", start_broker
    ),
    Route(
        "POST",
        "/restart",
        "End the broker, and start it with its data at the same address. Faults stay.",
        restart_broker,
        Restart,
    ),
    Route("POST", "/faults", "Order a fault.", order_fault, Order),
    Route("GET", "/faults", "Return all faults, and how often each has struck.", ordered_faults),
    Route("GET", "/faults/{id}", "Return a fault, and how often it has struck.", ordered_fault),
    Route("DELETE", "/faults/{id}", "End a fault, and repair what it broke.", end_fault),
    Route("DELETE", "/faults", "End and remove all faults; return them as they were.", end_all_faults),
    Route("POST", "/clock", "Move the broker's clock and timers forward.", advance_clock, Advance),
    Route("GET", "/topics", "Return the names of the topics.", lambda asked: asked.run(asked.inside.topics)),
    Route("POST", "/topics", "Create a topic.", _create_topic, NewTopic),
    Route("GET", "/topics/{topic}/records", "Return the committed records of a topic.", _records),
    Route("GET", "/topics/{topic}/producers", "Return the producers that a topic tracks.", _producers),
    Route(
        "POST",
        "/topics/{topic}/exactly-once",
        "Compare a topic with the values that were sent: lost, doubled, unexpected, reordered.",
        compare_with_sent,
        Expected,
    ),
    Route("GET", "/groups", "Return the state of each group.", lambda asked: asked.run(asked.inside.groups)),
    Route("POST", "/producers/{id}/expire", "Expire a producer in all partitions.", expire_everywhere),
    Route("POST", "/transactional-ids/{id}/fence", "Fence the producer of a transactional id.", fence_id),
    Route("POST", "/kill", "Kill the process, as kill -9 does. There is no answer.", _kill_process),
    Route(
        "POST",
        "/power-cut",
        "Kill the process and lose all records that were not flushed. There is no answer.",
        _power_cut_process,
    ),
)
