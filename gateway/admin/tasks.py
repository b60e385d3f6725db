"""`seqgate tasks`: the background tasks of a gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from seqgate.gateway.admin.commands import Output, asks
from seqgate.gateway.admin.options import Asker, Opened, gateway_or_gateways
from seqgate.gateway.admin.request import Request
from seqgate.gateway.admin.tables import Column, count, counted, duration, known, number, shown, table

if TYPE_CHECKING:
    from seqgate.gateway.admin.operation import LiveGateway
    from seqgate.gateway.runtime.loop.clock import Task
    from seqgate.gateway.runtime.services import NodeServices

# The request for tasks, and what `seqgate tasks --json` prints.


def _name(name: str) -> str:
    return shown(name, 60)


class TaskRow(msgspec.Struct, frozen=True):
    """A task. `total` is None while it is unknown; `age_ms` is the time since the task began, up to its end.
    `failure` says why the task ended before it was done, None where it did not fail. The gateway `node_id`
    numbers its tasks.
    """

    number: Annotated[int, Column("number", known)]
    name: Annotated[str, Column("task", _name)]
    begun_ms: int
    age_ms: Annotated[int, Column("for", duration)]
    done: Annotated[int, Column("done", count)]
    total: Annotated[int | None, Column("of", count, "")]
    ended: bool
    failure: str | None
    node_id: Annotated[int, Column("node", number)] = -1

    @property
    def state(self) -> Annotated[str, Column("state")]:
        """The state of the task as text."""
        if self.failure is not None:
            return f"failed: {self.failure}"
        return "done" if self.ended else "running"


class TaskPage(msgspec.Struct, frozen=True):
    """All tasks of the gateways in `nodes`. `files_to_delete` counts files that wait for deletion, a deleted
    partition as one.
    """

    tasks: list[TaskRow]
    files_to_delete: int
    nodes: list[int] = []


class ListTasksRequest(Request[TaskPage], tag="tasks"):
    """The tasks under way, and the last ones that ended."""

    asks_every_worker = True
    is_of_each = True
    network_right = "DESCRIBE"
    rows = "tasks"


# The command.


@asks(gateway_or_gateways)
def tasks(opened: Opened[Asker]) -> Output:
    """Show running and recently finished background tasks of all workers and all gateways of a cluster.

    Work that an administrative request has begun continues when the client's request times out; `seqgate
    tasks` shows it to the end.
    """
    with opened as client:
        page = client.ask(ListTasksRequest())
    waiting = counted(
        page.files_to_delete,
        "file or directory waits to be deleted.",
        "files and directories wait to be deleted.",
    )
    columns = "node_id " * (len(page.nodes) > 1) + "number name age_ms done total state"
    return Output(page, [table(TaskRow, page.tasks, columns), waiting])


# In the gateway: its answer on the control socket, and to a question of another gateway.

LISTING_TASKS: Final = f"seqgate {ListTasksRequest.operation_name()}"
"""The name of the task that lists the tasks, which is not listed."""


def list_tasks(gateway: LiveGateway, _: ListTasksRequest) -> TaskPage:
    """Return the tasks under way and the last ones that ended."""
    node = gateway.services.node
    deletions = gateway.services.partitions.log_directory.environment.deletions
    rows = [task_row(node, task) for task in node.tasks if task.name != LISTING_TASKS]
    return TaskPage(rows, len(deletions), [node.node_id])


def task_row(node: NodeServices, task: Task) -> TaskRow:
    """Return the row of a task."""
    ended_ms = task.ended_ms
    until_ms = node.clock.now_ms() if ended_ms is None else ended_ms
    return TaskRow(
        number=task.number,
        name=task.name,
        begun_ms=task.begun_ms,
        age_ms=max(0, until_ms - task.begun_ms),
        done=task.done,
        total=task.total,
        ended=ended_ms is not None,
        failure=task.failure,
        node_id=node.node_id,
    )
