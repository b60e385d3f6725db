"""The commands of `seqgate faults` for the broker itself: its life, its clock, its producers, and what it stored."""

from __future__ import annotations

import enum
import sys
from typing import Annotated, Any
from urllib.parse import quote

import typer

from gateway.admin.faults.asking import Control, asked
from gateway.admin.options import AsJson, stop
from gateway.admin.printing import print_json


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
    """Compare a topic with the values on stdin, one a line, in the order in which they were sent. Exits with 1 if they differ."""
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
