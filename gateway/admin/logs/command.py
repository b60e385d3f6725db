"""`seqgate logs`: the newest log lines of a running gateway."""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer

from seqgate.gateway.admin.client import Client
from seqgate.gateway.admin.logs.messages import LogLine, LogLinesRequest
from seqgate.gateway.admin.options import AsJson, ConfigFile, DataDir, asking, stop
from seqgate.gateway.admin.printing import moment, print_json, print_lines, shown

SHOWN: Final = 50
"""Lines that the command shows unless --lines says otherwise."""
POLL_S: Final = 0.5


def logs(
    lines: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", help="Show the newest N lines.", min=1)
    ] = SHOWN,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show further lines as they come, until Ctrl-C.")
    ] = False,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest log lines of a running gateway, wherever its log goes.

    The gateway keeps the newest 1,000 lines in memory, and none over a restart.
    """
    if follow and as_json:
        raise stop("--json prints one document; use it without --follow", code=2)
    with asking(config_file, data_dir) as client:
        found = _lines(client, LogLinesRequest(limit=lines))[-lines:]
        if as_json:
            print_json({"lines": found})
            return
        _print(found)
        if follow:
            _follow(client, found)


def _follow(client: Client, found: list[LogLine]) -> None:
    if len(client.ask_all(LogLinesRequest(limit=1))) > 1:
        raise stop("--follow shows the log of one process; several workers number their lines apart")
    after = max((line.number for line in found), default=0)
    while True:
        time.sleep(POLL_S)
        newer = _lines(client, LogLinesRequest(after=after))
        _print(newer)
        after = max((line.number for line in newer), default=after)


def _lines(client: Client, request: LogLinesRequest) -> list[LogLine]:
    """Return the newest lines of all workers, by time."""
    found = [line for page in client.ask_all(request) for line in page.lines]
    return sorted(found, key=lambda line: (line.time_ms, line.number))


def _print(lines: list[LogLine]) -> None:
    for line in lines:
        print_lines(f"{moment(line.time_ms)} {line.level} {line.logger}: {shown(line.message)}")
        if line.error is not None:
            print_lines(*map(shown, line.error.splitlines()))  # the text of an error may come from a client
