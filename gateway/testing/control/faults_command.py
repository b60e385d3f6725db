"""`seqgate faults`: orders, lists and ends faults of a gateway that runs with --test-control, and stops,
starts and restarts the broker, and moves its clock. The routes in `routes.py` answer in the gateway's
process, and refuse there; the commands print their sentences.
"""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec

from seqgate.gateway.admin.commands import REQUIRED, AsJson, Commands, Output, argument, asks, flag, option
from seqgate.gateway.admin.options import reporting_errors
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import Column, Table, counted, number

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
        if answer.status < http.HTTPStatus.BAD_REQUEST:
            return msgspec.json.decode(content)
        refusal = msgspec.json.decode(content, type=dict[Literal["error"], str])["error"]
    except (msgspec.DecodeError, KeyError):
        raise ControlError(
            f"{address} is no test control: {content[:100].decode(errors='replace')}"
        ) from None
    raise ControlRefused(refusal, answer.status)


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


# The commands for faults. `Orders.place` in routes.py and `Faults` in testing/faults.py refuse an order; the
# command prints their sentences.

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
    after: Literal["stop", "kill", "power-cut"] = option(
        "--after",
        "WAY",
        "The way in which the broker ends: stop; kill, which keeps all written records; or power-cut, "
        "which keeps the flushed ones only.",
        show_default=True,
        default="stop",
    ),
) -> Output:
    """End the broker, and start it with its data at the same address."""
    return _broker(control.ask("POST", "/restart", {"after": after.replace("-", "_")}))


@asks(at_control, first=True)
def advance(
    control: Control,
    days: float = option("--days", "N", "", show_default=True, min=0, default=0),
    hours: float = option("--hours", "N", "", show_default=True, min=0, default=0),
    minutes: float = option("--minutes", "N", "", show_default=True, min=0, default=0),
    seconds: float = option("--seconds", "N", "", show_default=True, min=0, default=0),
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
    known = counted(answer["partitions"], "partition")
    return Output(answer, [f"producer {producer_id} was known in {known}"])


@asks(at_control, first=True)
def fence(control: Control, transactional_id: str = argument("ID")) -> Output:
    """Fence the producer of a transactional id, and abort its open transaction. An id that nobody has used is
    refused.
    """
    answer = control.ask("POST", f"/transactional-ids/{quote(transactional_id, safe='')}/fence")
    return Output(answer, [f"the producer of {transactional_id} is fenced"])


@asks(at_control, first=True)
def exactly_once(control: Control, topic: str = argument("TOPIC"), as_json: AsJson = False) -> Output:
    """Compare a topic with the values on stdin, one a line, in the order in which they were sent. Exits with
    1 if they differ.
    """
    values = [shown(line.removesuffix(b"\n").removesuffix(b"\r")) for line in sys.stdin.buffer]
    answer = control.ask("POST", f"/topics/{quote(topic, safe='')}/exactly-once", {"values": values})
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
