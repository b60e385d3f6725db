"""`seqgate faults`: orders, lists and ends faults of a gateway that runs with --test-control.

`seqgate.gateway.admin.faults.command` has the commands for the broker itself.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from seqgate.gateway.admin.options import AsJson, stop
from seqgate.gateway.admin.printing import Column, print_json, print_table
from seqgate.gateway.admin.request import ControlError

# How the commands of `seqgate faults` ask the test control.

Control = Annotated[
    str, typer.Option("--control", metavar="HOST:PORT", help="The address of the test control.")
]


def asked(control: str, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """Return the answer of the test control. Ends the command with a sentence when the test control refuses."""
    from seqgate.gateway.admin.faults.control_client import ask  # noqa: PLC0415 - slow to import

    try:
        return ask(control, method, path, body)
    except ControlError as error:
        raise stop(str(error)) from None


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


def reset(control: Control, as_json: AsJson = False) -> None:
    """Begin anew: no topics, groups, producers, transactions or faults. The broker keeps its address."""
    _say_broker(asked(control, "POST", "/reset"), as_json)


def stop_(control: Control, as_json: AsJson = False) -> None:
    """Stop the broker cleanly. The test control still answers."""
    _say_broker(asked(control, "POST", "/stop"), as_json)


def start(control: Control, as_json: AsJson = False) -> None:
    """Start a broker that is stopped, with its data, at the same address."""
    _say_broker(asked(control, "POST", "/start"), as_json)


def restart(
    control: Control,
    after: Annotated[
        End,
        typer.Option(
            "--after", metavar="WAY", help="The way in which the broker ends: stop, kill or power-cut."
        ),
    ] = End.STOP,
    as_json: AsJson = False,
) -> None:
    """End the broker, and start it with its data at the same address."""
    _say_broker(asked(control, "POST", "/restart", {"after": after.replace("-", "_")}), as_json)


def advance(
    control: Control,
    days: Annotated[float, typer.Option(metavar="N")] = 0,
    hours: Annotated[float, typer.Option(metavar="N")] = 0,
    minutes: Annotated[float, typer.Option(metavar="N")] = 0,
    seconds: Annotated[float, typer.Option(metavar="N")] = 0,
    as_json: AsJson = False,
) -> None:
    """Move the broker's clock and timers forward."""
    by = {"days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
    answer = asked(control, "POST", "/clock", by)
    _say(answer, f"the clock is {answer['ahead_seconds']:g} s ahead", as_json)


def expire_producer(
    producer_id: Annotated[int, typer.Argument(metavar="ID", min=0)],
    control: Control,
    as_json: AsJson = False,
) -> None:
    """Forget a producer in all partitions."""
    answer = asked(control, "POST", f"/producers/{producer_id}/expire")
    _say(answer, f"producer {producer_id} was known in {answer['partitions']} partitions", as_json)


def fence(
    transactional_id: Annotated[str, typer.Argument(metavar="ID")], control: Control, as_json: AsJson = False
) -> None:
    """Fence the producer of a transactional id, and abort its open transaction."""
    answer = asked(control, "POST", f"/transactional-ids/{quote(transactional_id)}/fence")
    _say(answer, f"the producer of {transactional_id} is fenced", as_json)


def exactly_once(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")], control: Control, as_json: AsJson = False
) -> None:
    """Compare a topic with the values on stdin, one a line, in the order in which they were sent. Exits with
    1 if they differ.
    """
    values = sys.stdin.read().splitlines()
    answer = asked(control, "POST", f"/topics/{quote(topic)}/exactly-once", {"values": values})
    if as_json:
        print_json(answer)
        if not answer["exactly_once"]:
            raise typer.Exit(1)
    elif answer["exactly_once"]:
        print(f"topic {topic} holds each of {len(values)} values exactly once")
    else:
        raise stop(f"topic {topic}: {answer['complaint']}")


def _say_broker(broker: dict[str, Any], as_json: bool) -> None:
    state = "runs" if broker["running"] else "is stopped"
    _say(broker, f"the broker {state} (for clients: {broker['bootstrap']})", as_json)


def _say(answer: dict[str, Any], sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        print(sentence)


HELP: Final = "Order, list and end faults of a gateway that runs with --test-control, for tests."
app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.command()
def order(
    fault: Annotated[str, typer.Argument(metavar="FAULT", help="Such as drop_answer (docs/testing.md).")],
    control: Control,
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
        typer.Option("--kind", metavar="NAME", help="A kind of fault that script chooses; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
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
    _print([asked(control, "POST", "/faults", body)], as_json)


@app.command("list")
def list_(control: Control, as_json: AsJson = False) -> None:
    """List the faults, and how often each has struck."""
    _print(asked(control, "GET", "/faults"), as_json)


@app.command()
def end(
    control: Control,
    number: Annotated[
        int | None,
        typer.Argument(metavar="ID", help="The number of the fault. [default: all]", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """End a fault, or all, and repair what it broke; list the faults as they were at the end."""
    if number is None:
        _print(asked(control, "DELETE", "/faults"), as_json)
    else:
        _print([asked(control, "DELETE", f"/faults/{number}")], as_json)


add_broker_commands(app)


def _print(rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    columns = [
        Column("id", number=True),
        Column("fault"),
        Column("seen", number=True),
        Column("struck", number=True),
        Column("ended"),
    ]
    print_table(
        columns,
        [
            [
                str(row["id"]),
                row["text"],
                str(row["seen"]),
                str(row["struck"]),
                "yes" if row["ended"] else "no",
            ]
            for row in rows
        ],
    )
