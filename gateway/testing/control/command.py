"""`seqgate faults`: orders, lists and ends faults of a gateway that runs with --test-control, and stops,
starts and moves the broker itself. First the commands, then what answers them in the gateway's process.
"""

from __future__ import annotations

import base64
import binascii
import enum
import itertools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

import msgspec

from seqgate.gateway.admin.commands import REQUIRED, AsJson, Commands, Output, argument, asks, flag, option
from seqgate.gateway.admin.options import reporting_errors
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import Column, Table, number

if TYPE_CHECKING:
    from seqgate.gateway.testing.control.routes import Asked
    from seqgate.gateway.testing.faults import Fault, Faults, Kind

# Asks the test control of a gateway: JSON over HTTP.

TIMEOUT_S: Final = 60.0


class ControlRefused(ControlError):
    """The test control refused a request. `status` is that of HTTP: 404 for what does not exist."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


def ask(
    address: str,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
) -> Any:
    """Return the answer of HOST:PORT to a request; None if the gateway ends instead. Raises ControlError."""
    import http.client  # noqa: PLC0415 - slow to import

    try:
        connection = http.client.HTTPConnection(address, timeout=timeout_s)
    except http.client.InvalidURL as error:
        raise ControlError(f"{address} is no HOST:PORT: {error}") from None
    try:
        content = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"content-type": "application/json"}
        connection.request(method, path, content, headers)
        answer = connection.getresponse()
        content = answer.read()
    except (http.client.RemoteDisconnected, ConnectionResetError):
        return None
    except OSError as error:
        raise ControlError(f"no test control answers on {address}: {error.strerror or error}") from error
    except http.client.HTTPException as error:
        raise ControlError(f"{address} is no test control, it does not speak HTTP: {error}") from error
    finally:
        connection.close()
    try:
        decoded = msgspec.json.decode(content)
    except msgspec.DecodeError:
        raise ControlError(
            f"{address} is no test control: {content[:100].decode(errors='replace')}"
        ) from None
    if answer.status >= http.HTTPStatus.BAD_REQUEST:
        raise ControlRefused(decoded["error"], answer.status)
    return decoded


class Control(msgspec.Struct, frozen=True):
    """The test control at an address."""

    address: str

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the answer. Ends the command with a sentence when the test control refuses."""
        with reporting_errors():
            answer = ask(self.address, method, path, body)
            if answer is None:
                raise ControlError(f"{self.address} ended the connection without an answer")
            return answer


def at_control(
    control: str = option("--control", "HOST:PORT", "The address of the test control.", default=REQUIRED),
) -> Control:
    """Return the test control that the option names."""
    return Control(control)


# The commands for faults.

app = Commands("Order, list and end faults of a gateway that runs with --test-control, for tests.")


@app.command("order")
@asks(at_control, first=True)
def order(
    control: Control,
    fault: str = argument("FAULT", "Its name, such as drop_answer (`seqgate help testing`)."),
    api: str | None = option("--api", "NAME", "The API of the requests, such as Produce."),
    topic: str | None = option("--topic", "TOPIC", "The topic of the requests, or of the partition."),
    partition: int | None = option("--partition", "N", "The partition of partition_offline.", min=0),
    client: str | None = option("--client", "ID", "The client id of the requests."),
    times: int | None = option(
        "--times", "N", "Requests to strike; later ones are spared. [default: 1, of script 100]", min=1
    ),
    after: int | None = option("--after", "N", "Requests to spare first.", min=0),
    milliseconds: int | None = option(
        "--milliseconds", "MS", "The time of delay, throttle and a late error.", min=0
    ),
    code: str | None = option("--code", "NAME", "The name of the error, such as NOT_ENOUGH_REPLICAS."),
    closes: bool | None = flag(
        "--closes/--loses", "Whether drop_answer closes the connection.", default=None
    ),
    carries_out: bool | None = flag("--carries-out", "Let error carry the request out first.", default=None),
    seed: int | None = option("--seed", "N", "The seed of script."),
    rate: float | None = option("--rate", "SHARE", "The share of the requests that script strikes."),
    kinds: list[str] | None = option(
        "--kind", "NAME", "A kind of fault that script chooses; may be repeated."
    ),
) -> Output:
    """Order a fault; print its number.

    \b
    Faults, and the options that each takes; ANY are --api, --topic, --client, --times and --after:
      drop_answer         ANY, --closes: a request is carried out and not answered
      close               ANY: a connection is closed in place of carrying a request out
      error               ANY, --code (needed), --carries-out, --milliseconds: a request is refused
      delay               ANY, --milliseconds: a request is answered later
      throttle            ANY, --milliseconds: an answer tells the client to wait
      corrupt             --topic, --client, --times, --after: a bit of fetched records is flipped
      not_leader          --topic, --times, --after: Produce gets NOT_LEADER_OR_FOLLOWER
      coordinator_moves   --api (OffsetCommit), --times, --after: a request gets NOT_COORDINATOR
      watch               --api, --topic, --client: requests are counted, and nothing else happens
      script              --seed (needed), --api, --topic, --client, --times, --rate, --kind: its choice
      partition_offline   --topic (needed), --partition: the partition is out of service
      disk_full           none: the disk seems to be full
    """  # noqa: D301 - \b keeps the lines of the list apart
    said = {
        "fault": fault,
        "api": api,
        "topic": topic,
        "partition": partition,
        "client": client,
        "times": times,
        "after": after,
        "milliseconds": milliseconds,
        "code": code,
        "closes": closes,
        "carries_out": carries_out,
        "seed": seed,
        "rate": rate,
        "kinds": kinds or None,
    }
    body = {name: value for name, value in said.items() if value is not None}
    return _faults([control.ask("POST", "/faults", body)])


@app.command("list")
@asks(at_control, first=True)
def list_(control: Control) -> Output:
    """List the faults, and how often each has struck."""
    # `Fault.strike` in `testing/faults.py` counts.
    return _faults(control.ask("GET", "/faults"))


@app.command("end")
@asks(at_control, first=True)
def end(
    control: Control,
    number: int | None = argument("ID", "The number of the fault. [default: all]", default=None),
) -> Output:
    """End a fault, or all.

    A fault that ends alone stays in the list, as ended. Without ID all faults end and leave the list; they
    are shown as they were before. Two faults are repaired when they end: a partition that is offline is
    recovered, with all its records, and a full disk has its free space again. The other faults only strike no
    more.
    """
    if number is None:
        return _faults(control.ask("DELETE", "/faults"))
    return _faults([control.ask("DELETE", f"/faults/{number}")])


def _faults(rows: Sequence[dict[str, Any]]) -> Output:
    columns = (
        Column("id", number),
        Column("fault"),
        Column("seen", number),
        Column("struck", number),
        Column("ended"),
    )
    cells = [
        [str(row["id"]), row["text"], str(row["seen"]), str(row["struck"]), "yes" if row["ended"] else "no"]
        for row in rows
    ]
    return Output(rows, [Table(columns, cells)])


# The commands of `seqgate faults` for the broker itself: its life, its clock, its producers, and what it
# stored.


class BrokerEnd(enum.StrEnum):
    """The ways in which a broker ends before it starts again."""

    STOP = "stop"
    """Cleanly: all records stay."""
    KILL = "kill"
    """As by kill -9: all records that were written stay."""
    POWER_CUT = "power-cut"
    """Only flushed records stay (`BrokerThread.power_cut`)."""


@asks(at_control, first=True)
def reset(control: Control) -> Output:
    """Begin anew: no topics, groups, producers, transactions or faults. The broker runs afterwards, at the
    same address and with the time of day.
    """
    return _broker(control.ask("POST", "/reset"))


@asks(at_control, first=True)
def stop_(control: Control) -> Output:
    """Stop the broker cleanly. The test control still answers."""
    return _broker(control.ask("POST", "/stop"))


@asks(at_control, first=True)
def start(control: Control) -> Output:
    """Start a broker that is stopped, with its data, at the same address. One that runs is refused."""
    return _broker(control.ask("POST", "/start"))


@asks(at_control, first=True)
def restart(
    control: Control,
    after: BrokerEnd = option(
        "--after",
        "WAY",
        "The way in which the broker ends: stop; kill, which keeps all written records; or power-cut, "
        "which keeps the flushed ones only.",
        show_default=True,
        default=BrokerEnd.STOP,
    ),
) -> Output:
    """End the broker, and start it with its data at the same address."""
    return _broker(control.ask("POST", "/restart", {"after": after.replace("-", "_")}))


@asks(at_control, first=True)
def advance(
    control: Control,
    days: float = option("--days", "N", "", show_default=True, default=0),
    hours: float = option("--hours", "N", "", show_default=True, default=0),
    minutes: float = option("--minutes", "N", "", show_default=True, default=0),
    seconds: float = option("--seconds", "N", "", show_default=True, default=0),
) -> Output:
    """Move the broker's clock and timers forward."""
    by = {"days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
    answer = control.ask("POST", "/clock", by)
    return Output(answer, [f"the clock is {answer['ahead_seconds']:g} s ahead"])


@asks(at_control, first=True)
def expire_producer(control: Control, producer_id: int = argument("ID", min=0)) -> Output:
    """Expire a producer in all partitions, as after producer.id.expiration.ms.

    Its next batch is judged as the first of a new producer: any sequence is stored, and a retry of a stored
    batch is stored a second time. In a transaction of version 2 a sequence above 0 is refused with
    OUT_OF_ORDER_SEQUENCE_NUMBER. An id that no partition knows is no error: it was known in 0 partitions.
    """
    answer = control.ask("POST", f"/producers/{producer_id}/expire")
    return Output(answer, [f"producer {producer_id} was known in {answer['partitions']} partitions"])


@asks(at_control, first=True)
def fence(control: Control, transactional_id: str = argument("ID")) -> Output:
    """Fence the producer of a transactional id, and abort its open transaction."""
    answer = control.ask("POST", f"/transactional-ids/{quote(transactional_id, safe='')}/fence")
    return Output(answer, [f"the producer of {transactional_id} is fenced"])


@asks(at_control, first=True)
def exactly_once(control: Control, topic: str = argument("TOPIC"), as_json: AsJson = False) -> Output:
    """Compare a topic with the values on stdin, one a line, in the order in which they were sent. Exits with
    1 if they differ.
    """
    values = [shown(line.removesuffix(b"\n").removesuffix(b"\r")) for line in sys.stdin.buffer]
    answer = control.ask("POST", f"/topics/{quote(topic)}/exactly-once", {"values": values})
    if answer["exactly_once"]:
        return Output(answer, [f"topic {topic} holds each of {len(values)} values exactly once"])
    return Output(answer, code=1, refusals=() if as_json else [f"topic {topic}: {answer['complaint']}"])


def _broker(broker: dict[str, Any]) -> Output:
    state = "runs" if broker["running"] else "is stopped"
    return Output(broker, [f"the broker {state} (for clients: {broker['bootstrap']})"])


for _broker_command in (reset, stop_, start, restart, advance, expire_producer, fence, exactly_once):
    app.command(_broker_command.name.rstrip("_").replace("_", "-"))(_broker_command)


# Keys and values in JSON: text where the bytes are UTF-8, {"base64": ...} for all others.


def shown(value: bytes | None) -> Any:
    """Return bytes for an answer."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def read(value: Any) -> bytes | None:
    """Return the bytes that a request names. Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error:
            pass
    raise ValueError(f'a value must be text, null or {{"base64": "..."}}, not {value!r}')


# In the gateway: the faults that were ordered, found again by number.


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
DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "script": {"times": 100},
    "coordinator_moves": {"api": "OffsetCommit"},
}
"""The values of fields that an order leaves out; other faults strike once, watch until its end."""


def _chosen(order: Order) -> dict[str, Any]:
    """Return the arguments of an order. Raises ValueError for fields that the fault has not, or lacks."""
    names = FAULTS[order.fault]
    known = {"fault", *names}
    for field in msgspec.structs.fields(order):
        if field.name not in known and getattr(order, field.name) != field.default:
            raise ValueError(f"{order.fault} has no field {field.name!r}; it has {', '.join(sorted(known))}")
    given = {name: getattr(order, name) for name in names if getattr(order, name) is not None}
    given = {"times": 1, **DEFAULTS.get(order.fault, {}), **given}
    found = {name: given[name] for name in names if name in given}
    required = _REQUIRED.get(order.fault)
    if required is not None and required not in found:
        raise ValueError(f"{order.fault} needs the field {required!r}")
    if "kinds" in found:
        found["kinds"] = [_kind(name) for name in found["kinds"]]
    return found


def _kind(name: str) -> Kind:
    """Return the kind of fault with a name such as drop_answer. Raises ValueError."""
    from seqgate.gateway.testing.faults import Kind  # noqa: PLC0415 - no command needs it

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
        for each in self._all.values():
            each.repair()
        self._all.clear()


# In the gateway: the answers to the requests of the commands.


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


def broker_state(asked: Asked) -> Any:
    return {"bootstrap": asked.broker.advertised, "pid": os.getpid(), "running": asked.broker.is_running}


def order_fault(asked: Asked) -> Any:
    return asked.orders.place(asked.read(Order)).as_row()


def ordered_faults(asked: Asked) -> Any:
    return [each.as_row() for each in asked.orders.all()]


def ordered_fault(asked: Asked) -> Any:
    return asked.orders.get(asked.number).as_row()


def end_fault(asked: Asked) -> Any:
    return asked.orders.end(asked.number).as_row()


def end_all_faults(asked: Asked) -> Any:
    ended = ordered_faults(asked)
    asked.orders.end_all()
    return ended


def advance_clock(asked: Asked) -> Any:
    try:
        by = timedelta(**msgspec.structs.asdict(asked.read(Advance)))
    except OverflowError:
        raise ValueError(f"the clock can't move by more than {timedelta.max}") from None
    if by < timedelta():
        raise ValueError(f"the clock only moves forward, not by {by}")
    asked.broker.advance(by.total_seconds())
    return {"ahead_seconds": asked.broker.machine.ahead_s}


def compare_with_sent(asked: Asked) -> Any:
    from seqgate.gateway.testing.exactly_once import explain_differences  # noqa: PLC0415 - no command needs it

    expected = [read(value) for value in asked.read(Expected).values]
    complaint = explain_differences(asked.run(lambda: asked.inside.records(asked.name)), expected)
    return {"exactly_once": complaint is None, "complaint": complaint}


def expire_everywhere(asked: Asked) -> Any:
    return {"partitions": asked.run(lambda: asked.inside.expire_producer(asked.number))}


def fence_id(asked: Asked) -> Any:
    asked.run(lambda: asked.inside.fence(asked.name))
    return {"transactional_id": asked.name}


def reset_broker(asked: Asked) -> Any:
    asked.orders.end_all()
    asked.broker.reset()
    return broker_state(asked)


def stop_broker(asked: Asked) -> Any:
    asked.broker.stop()
    return broker_state(asked)


def start_broker(asked: Asked) -> Any:
    """Start the broker. Raises NotNow if it runs."""
    from seqgate.gateway.testing.broker_thread import NotNow  # noqa: PLC0415 - slow, and only a gateway needs it

    if asked.broker.is_running:
        raise NotNow("the broker runs already; `seqgate faults stop` stops it")
    asked.broker.start()
    return broker_state(asked)


def restart_broker(asked: Asked) -> Any:
    ends: Mapping[str, Callable[[], None]] = {
        "stop": asked.broker.stop,
        "kill": asked.broker.kill,
        "power_cut": asked.broker.power_cut,
    }
    ends[asked.read(Restart).after]()
    return start_broker(asked)
