"""`seqgate logs`: the newest log lines of a running gateway."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from seqgate.gateway.admin.commands import AsJson, Output, asks, flag, option, stop
from seqgate.gateway.admin.options import Asker, Opened, gateway_or_gateways
from seqgate.gateway.admin.printing import print_lines
from seqgate.gateway.admin.request import MAX_PAGE_ROWS, PagedRequest, newest_first
from seqgate.gateway.admin.tables import moment, shown

if TYPE_CHECKING:
    from seqgate.gateway.admin.operation import LiveGateway

# The request for the newest log lines of a gateway, and what `seqgate logs --json` prints.


class LogLine(msgspec.Struct, frozen=True):
    """A log line; `number` counts the lines of the gateway `node_id` since its start, `error` is the
    traceback of an unexpected error.
    """

    number: int
    time_ms: int
    level: str
    logger: str
    message: str
    error: str | None
    node_id: int = -1


class LogPage(msgspec.Struct, frozen=True):
    """The newest lines, the oldest first. Each gateway of `nodes` keeps the newest `kept` lines in memory;
    the first of them started at `started_ms`.
    """

    lines: list[LogLine]
    kept: int
    nodes: list[int] = []
    started_ms: int = -1


class LogLinesRequest(PagedRequest[LogPage], tag="log-lines"):
    """The newest lines of the gateway's log, with a number above `after`, or above that of its node id in
    `after_of`.
    """

    asks_every_worker = True
    is_of_each = True
    network_right = "ALTER"
    rows = "lines"
    after: int = 0
    after_of: dict[int, int] = msgspec.field(default_factory=dict)


SHOWN: Final = 50
"""Lines that the command shows unless --lines says otherwise."""
POLL_S: Final = 0.5


@asks(gateway_or_gateways)
def logs(
    opened: Opened[Asker],
    lines: int = option(
        "--lines -n", "N", "Show the newest N lines.", show_default=True, min=1, default=SHOWN
    ),
    follow: bool = flag("--follow -f", "Show further lines as they come, until Ctrl-C."),
    as_json: AsJson = False,
) -> Output | None:
    """Show the newest log lines of a running gateway, wherever its log goes.

    All workers and all gateways of a cluster are asked, and each line has the node id of its gateway then.
    With --bootstrap that needs ALTER on the cluster where there is an authorizer. A gateway keeps the newest
    1,000 lines in memory, and none over a restart.
    """
    if follow and as_json:
        raise stop("--json prints one document; use it without --follow", code=2)
    with opened as client:
        found, nodes = _lines(client, LogLinesRequest(limit=min(lines, MAX_PAGE_ROWS)))
        newest = found[-lines:]
        if not follow:
            return Output({"lines": newest}, _text(newest, nodes))
        print_lines(*_text(newest, nodes))
        _follow(client, found)
    return None


def _follow(client: Asker, found: list[LogLine]) -> None:
    after: dict[int, int] = {}
    while True:
        newest: dict[int, int] = {}
        for line in found:
            newest[line.node_id] = max(line.number, newest.get(line.node_id, 0))
        after |= newest  # lower numbers than before are those of a gateway that has started again
        time.sleep(POLL_S)
        found, nodes = _lines(client, LogLinesRequest(after_of=after))
        print_lines(*_text(found, nodes))


def _lines(client: Asker, request: LogLinesRequest) -> tuple[list[LogLine], list[int]]:
    """Return the newest lines of all gateways, by time, and the node ids of those that answered."""
    page = client.ask(request)
    return sorted(page.lines, key=lambda line: (line.time_ms, line.number)), page.nodes


def _text(lines: list[LogLine], nodes: Sequence[int] = ()) -> Iterator[str]:
    for line in lines:
        node = f" node {line.node_id}" if len(nodes) > 1 else ""
        yield f"{moment(line.time_ms)}{node} {line.level} {line.logger}: {shown(line.message)}"
        if line.error is not None:
            yield from map(shown, line.error.splitlines())  # the text of an error may come from a client


# In the gateway: its newest log lines.


def log_lines(gateway: LiveGateway, request: LogLinesRequest) -> LogPage:
    """Return the newest lines with a number above `after`; all if this process has begun to count again."""
    from seqgate.gateway.runtime.loop.log_output import LINES_KEPT, recent_lines  # noqa: PLC0415 - slow

    node_id = gateway.services.node.node_id
    after = request.after_of.get(node_id, request.after)
    newest = islice(newest_first(recent_lines(), after), request.limit)
    rows = [LogLine(*line, node_id) for line in newest][::-1]
    return LogPage(rows, LINES_KEPT, [node_id], gateway.started_at_ms)
