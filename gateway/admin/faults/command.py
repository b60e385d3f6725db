"""`seqgate faults`: orders, lists and ends faults of a gateway that runs with --test-control.

`seqgate.gateway.admin.faults.command` has the commands for the broker itself.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from seqgate.gateway.admin.options import AsJson, Output, argument, asks, option, reporting_errors
from seqgate.gateway.admin.tables import Column, Table, number

# How the commands of `seqgate faults` ask the test control.


@dataclass(frozen=True, slots=True)
class Control:
    """The test control at an address."""

    address: str

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the answer. Ends the command with a sentence when the test control refuses."""
        from seqgate.gateway.admin.faults.control_client import ask  # noqa: PLC0415 - slow to import

        with reporting_errors():
            return ask(self.address, method, path, body)


def at_control(
    control: Annotated[
        str, option("--control", "HOST:PORT", "The address of the test control.", show_default=True)
    ],
) -> Control:
    """Return the test control that the option names."""
    return Control(control)


# The commands of `seqgate faults` for the broker itself: its life, its clock, its producers, and what it
# stored.


class End(enum.StrEnum):
    """The ways in which a broker ends before it starts again."""

    STOP = "stop"
    KILL = "kill"
    POWER_CUT = "power-cut"


def add_broker_commands(app: typer.Typer) -> None:
    """Add the commands to those of `seqgate faults`."""
    for command in (reset, stop_, start, restart, advance, expire_producer, fence, exactly_once):
        app.command(command.__name__.rstrip("_").replace("_", "-"))(command)


@asks(at_control, first=True)
def reset(control: Control) -> Output:
    """Begin anew: no topics, groups, producers, transactions or faults. The broker keeps its address."""
    return _broker(control.ask("POST", "/reset"))


@asks(at_control, first=True)
def stop_(control: Control) -> Output:
    """Stop the broker cleanly. The test control still answers."""
    return _broker(control.ask("POST", "/stop"))


@asks(at_control, first=True)
def start(control: Control) -> Output:
    """Start a broker that is stopped, with its data, at the same address."""
    return _broker(control.ask("POST", "/start"))


@asks(at_control, first=True)
def restart(
    control: Control,
    after: Annotated[
        End,
        option(
            "--after", "WAY", "The way in which the broker ends: stop, kill or power-cut.", show_default=True
        ),
    ] = End.STOP,
) -> Output:
    """End the broker, and start it with its data at the same address."""
    return _broker(control.ask("POST", "/restart", {"after": after.replace("-", "_")}))


@asks(at_control, first=True)
def advance(
    control: Control,
    days: Annotated[float, typer.Option(metavar="N")] = 0,
    hours: Annotated[float, typer.Option(metavar="N")] = 0,
    minutes: Annotated[float, typer.Option(metavar="N")] = 0,
    seconds: Annotated[float, typer.Option(metavar="N")] = 0,
) -> Output:
    """Move the broker's clock and timers forward."""
    by = {"days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
    answer = control.ask("POST", "/clock", by)
    return Output(answer, [f"the clock is {answer['ahead_seconds']:g} s ahead"])


@asks(at_control, first=True)
def expire_producer(
    control: Control, producer_id: Annotated[int, typer.Argument(metavar="ID", min=0)]
) -> Output:
    """Forget a producer in all partitions."""
    answer = control.ask("POST", f"/producers/{producer_id}/expire")
    return Output(answer, [f"producer {producer_id} was known in {answer['partitions']} partitions"])


@asks(at_control, first=True)
def fence(control: Control, transactional_id: Annotated[str, typer.Argument(metavar="ID")]) -> Output:
    """Fence the producer of a transactional id, and abort its open transaction."""
    answer = control.ask("POST", f"/transactional-ids/{quote(transactional_id)}/fence")
    return Output(answer, [f"the producer of {transactional_id} is fenced"])


@asks(at_control, first=True)
def exactly_once(
    control: Control, topic: Annotated[str, typer.Argument(metavar="TOPIC")], as_json: AsJson = False
) -> Output:
    """Compare a topic with the values on stdin, one a line, in the order in which they were sent. Exits with
    1 if they differ.
    """
    values = sys.stdin.read().splitlines()
    answer = control.ask("POST", f"/topics/{quote(topic)}/exactly-once", {"values": values})
    if answer["exactly_once"]:
        return Output(answer, [f"topic {topic} holds each of {len(values)} values exactly once"])
    return Output(answer, code=1, refusals=() if as_json else [f"topic {topic}: {answer['complaint']}"])


def _broker(broker: dict[str, Any]) -> Output:
    state = "runs" if broker["running"] else "is stopped"
    return Output(broker, [f"the broker {state} (for clients: {broker['bootstrap']})"])


HELP: Final = "Order, list and end faults of a gateway that runs with --test-control, for tests."
app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.command()
@asks(at_control, first=True)
def order(
    control: Control,
    fault: Annotated[str, argument("FAULT", "Such as drop_answer (docs/testing.md).", show_default=True)],
    api: Annotated[
        str | None, typer.Option(metavar="NAME", help="The API of the requests, such as Produce.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="The topic of the requests, or of the partition.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(metavar="N", help="The partition of partition_offline.")
    ] = None,
    client: Annotated[str | None, typer.Option(metavar="ID", help="The client id of the requests.")] = None,
    times: Annotated[int | None, typer.Option(metavar="N", help="Requests to strike.")] = None,
    after: Annotated[int | None, typer.Option(metavar="N", help="Requests to spare first.")] = None,
    milliseconds: Annotated[
        int | None, typer.Option(metavar="MS", help="The time of delay, throttle and a late error.")
    ] = None,
    code: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name of the error, such as NOT_ENOUGH_REPLICAS.")
    ] = None,
    closes: Annotated[
        bool | None, typer.Option("--closes/--loses", help="Whether drop_answer closes the connection.")
    ] = None,
    carries_out: Annotated[
        bool | None, typer.Option("--carries-out", help="Let error carry the request out first.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="The seed of script.")] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="SHARE", help="The share of the requests that script strikes.")
    ] = None,
    kinds: Annotated[
        list[str] | None,
        option("--kind", "NAME", "A kind of fault that script chooses; may be repeated.", show_default=True),
    ] = None,
) -> Output:
    """Order a fault; print its number."""
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
    return _faults(control.ask("GET", "/faults"))


@app.command()
@asks(at_control, first=True)
def end(
    control: Control,
    number: Annotated[int | None, argument("ID", "The number of the fault. [default: all]")] = None,
) -> Output:
    """End a fault, or all, and repair what it broke; list the faults as they were at the end."""
    if number is None:
        return _faults(control.ask("DELETE", "/faults"))
    return _faults([control.ask("DELETE", f"/faults/{number}")])


add_broker_commands(app)


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
