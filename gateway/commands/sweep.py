"""`seqgate sweep` and `seqgate tasks`: what belongs to nothing, and what goes on."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.commands.options import AsJson, ConfigFile, DataDir, asking, stop

if TYPE_CHECKING:
    from gateway.control.messages import SweepRequest
    from gateway.control.sweep_results import SweepPage, TaskRow

POLL_S = 0.2
DEFAULT_AGE = "1h"


def sweep(
    remove: Annotated[bool, typer.Option("--remove", help="Remove what belongs to nothing.")] = False,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="With --remove: remove files of no known name as well.")
    ] = False,
    min_age: Annotated[
        str,
        typer.Option(
            "--min-age", metavar="TIME", help="Pass over files that changed less long ago: 30s, 5m, 2h."
        ),
    ] = DEFAULT_AGE,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Compare what is stored with what is known, and report what belongs to nothing.

    Of a running gateway: files and directories without a topic, a partition or a segment, temporary files that were never
    renamed, and what groups and transactions hold of topics that are gone. It goes on beside requests. Of a data directory
    that no gateway has open: the files alone.

    \b
    Kinds:
      partition without a topic        a partition's directory, but there is no such topic or partition
      segment without a partition      a segment's files that no partition knows; may hold records, never removed
      index without a segment          an index whose log file is gone
      snapshot without a segment       producer state beyond the end of a log, or of segments long deleted
      temporary file                   written to be renamed, and never renamed
      left to be deleted               renamed to be deleted, but nothing waits to delete it
      unknown                          no name that is used here; removed only with --unknown
      ... without a topic              offsets, share groups and transactions of topics that are gone

    Exits with 1 when something is left that belongs to nothing.
    """  # noqa: D301 - \b keeps the lines of the list apart
    from gateway.commands import printing
    from gateway.commands.durations import duration_ms
    from gateway.control.messages import SweepRequest

    try:
        min_age_ms = duration_ms(min_age)
    except ValueError as error:
        raise stop(f"--min-age: {error}", code=2) from None
    if unknown and not remove:
        raise stop("--unknown needs --remove", code=2)
    request = SweepRequest(remove=remove, unknown=unknown, min_age_ms=min_age_ms)
    with asking(config_file, data_dir) as directory:
        page = _sweep(directory, request)
    if as_json:
        printing.print_json(page)
    else:
        _print(page)
    raise typer.Exit(1 if any(not leak.removed for leak in page.leaks) else 0)


def _sweep(directory: Path, request: SweepRequest) -> SweepPage:
    """Raises ControlError."""
    from gateway.control.client import ask, sweep_result
    from gateway.control.errors import ControlError, NotRunning
    from gateway.control.sweep_results import TaskRow

    try:
        task = ask(directory, request, TaskRow)
    except NotRunning:
        from gateway.control import stopped_sweep

        now_ms = time.time_ns() // 1_000_000
        return stopped_sweep.sweep(directory, request, now_ms, _tell_progress)
    while True:
        page = sweep_result(directory, task.number)
        if page.task.ended:
            break
        _tell_progress(page.task.done, page.task.total)
        time.sleep(POLL_S)
    if page.task.failure is not None:
        raise ControlError(f"the sweep failed: {page.task.failure}")
    return page


def _tell_progress(done: int, total: int | None) -> None:
    """On a terminal, how far it is; overwritten by what comes next."""
    if sys.stderr.isatty() and (total is None or done % 100 == 0):
        of = "" if total is None else f" of {total:,}"
        print(f"\r{done:,}{of} looked at", end="\r", file=sys.stderr, flush=True)


def _print(page: SweepPage) -> None:
    from gateway.commands import printing

    if page.leaks:
        columns = [printing.Column("kind"), printing.Column("what"), printing.Column("size", number=True)]
        printing.print_table(
            [*columns, printing.Column("")],
            [
                (
                    leak.kind,
                    printing.shown(leak.place),
                    "" if leak.size_bytes is None else printing.count(leak.size_bytes),
                    "removed" if leak.removed else "" if leak.removable else "look at it",
                )
                for leak in page.leaks
            ],
        )
        kinds = Counter(leak.kind for leak in page.leaks)
        printing.print_lines(", ".join(f"{count} × {kind}" for kind, count in kinds.items()))
    else:
        printing.print_lines("Nothing is left that belongs to nothing.")
    if page.gateway == "stopped":
        printing.print_lines(
            "The gateway is stopped: only files were compared, not what groups and transactions hold."
        )


def tasks(data_dir: DataDir = None, config_file: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show the long work that goes on in a running gateway, and the last that is over.

    What an administrative request has begun goes on when the client's time is over; here it is seen to the end.
    """
    from gateway.commands import printing
    from gateway.control.client import ask
    from gateway.control.messages import ListTasksRequest
    from gateway.control.sweep_results import TaskPage

    with asking(config_file, data_dir) as directory:
        page = ask(directory, ListTasksRequest(), TaskPage)
    if as_json:
        printing.print_json(page)
        return
    printing.print_table(
        [
            printing.Column("number", number=True),
            printing.Column("task"),
            printing.Column("for", number=True),
            printing.Column("done", number=True),
            printing.Column("of", number=True),
            printing.Column("state"),
        ],
        [
            (
                str(task.number),
                printing.shown(task.name, 60),
                printing.duration(task.age_ms),
                printing.count(task.done),
                "" if task.total is None else printing.count(task.total),
                _state(task),
            )
            for task in page.tasks
        ],
    )
    printing.print_lines(
        f"{printing.counted(page.files_to_delete, 'file')} and directories wait to be deleted."
    )


def _state(task: TaskRow) -> str:
    if task.failure is not None:
        return f"failed: {task.failure}"
    return "done" if task.ended else "running"
