"""`seqgate logs`: the newest log lines of a running gateway."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import msgspec

from seqgate.gateway.admin.client import Client, places
from seqgate.gateway.admin.commands import AsJson, Output, asks, flag, option, stop
from seqgate.gateway.admin.options import Opened, gateway
from seqgate.gateway.admin.printing import print_lines
from seqgate.gateway.admin.request import PagedRequest
from seqgate.gateway.admin.tables import moment, shown

SHOWN: Final = 50
"""Lines that the command shows unless --lines says otherwise."""
POLL_S: Final = 0.5


@asks(gateway)
def logs(
    opened: Opened[Client],
    lines: int = option(
        "--lines -n", "N", "Show the newest N lines.", show_default=True, min=1, default=SHOWN
    ),
    follow: bool = flag("--follow -f", "Show further lines as they come, until Ctrl-C."),
    as_json: AsJson = False,
) -> Output | None:
    """Show the newest log lines of a running gateway, wherever its log goes.

    The gateway keeps the newest 1,000 lines in memory, and none over a restart.
    """
    if follow and as_json:
        raise stop("--json prints one document; use it without --follow", code=2)
    with opened as client:
        found = _lines(client, LogLinesRequest(limit=lines))[-lines:]
        if not follow:
            return Output({"lines": found}, _text(found))
        print_lines(*_text(found))
        _follow(client, found)
    return None


def _follow(client: Client, found: list[LogLine]) -> None:
    if len(places(client.data_dir)) > 1:
        raise stop("--follow shows the log of one process; several workers number their lines apart")
    after = max((line.number for line in found), default=0)
    while True:
        time.sleep(POLL_S)
        newer = _lines(client, LogLinesRequest(after=after))
        print_lines(*_text(newer))
        after = max((line.number for line in newer), default=after)


def _lines(client: Client, request: LogLinesRequest) -> list[LogLine]:
    """Return the newest lines of all workers, by time."""
    return sorted(client.ask(request).lines, key=lambda line: (line.time_ms, line.number))


def _text(lines: list[LogLine]) -> Iterator[str]:
    for line in lines:
        yield f"{moment(line.time_ms)} {line.level} {line.logger}: {shown(line.message)}"
        if line.error is not None:
            yield from map(shown, line.error.splitlines())  # the text of an error may come from a client


# The request for the newest log lines of a gateway, and what `seqgate logs --json` prints.


class LogLine(msgspec.Struct, frozen=True):
    """A log line; `number` counts lines since the start, `error` is the traceback of an unexpected error."""

    number: int
    time_ms: int
    level: str
    logger: str
    message: str
    error: str | None


class LogPage(msgspec.Struct, frozen=True):
    """The newest lines, the oldest first. The gateway keeps the newest `kept` lines in memory."""

    lines: list[LogLine]
    kept: int


class LogLinesRequest(PagedRequest[LogPage], tag="log-lines"):
    """The newest lines of the gateway's log, with a number above `after`."""

    is_spread = True
    rows = "lines"
    after: int = 0
