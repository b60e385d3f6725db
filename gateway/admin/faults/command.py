"""`seqgate faults`: orders, lists and ends faults of a gateway that runs with --test-control.

`gateway.admin.faults.broker_command` has the commands for the broker itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from gateway.admin.faults.asking import Control, asked
from gateway.admin.faults.broker_command import add_broker_commands
from gateway.admin.options import AsJson
from gateway.admin.printing import Column, print_json, print_table

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
