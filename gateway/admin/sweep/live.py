"""Sweeps and tasks of a running gateway."""

from __future__ import annotations

from gateway.admin.operation import LiveGateway
from gateway.admin.sweep.messages import (
    ListTasksRequest,
    SweepPage,
    SweepRequest,
    SweepResultRequest,
    TaskPage,
    TaskRow,
)


def begin(gateway: LiveGateway, request: SweepRequest) -> TaskRow:
    """Begin a sweep. Raises ControlError."""
    return gateway.sweeps.begin(request)


def result(gateway: LiveGateway, request: SweepResultRequest) -> SweepPage:
    """Return one page of a sweep's findings. Raises ControlError."""
    return gateway.sweeps.result(request)


def tasks(gateway: LiveGateway, _: ListTasksRequest) -> TaskPage:
    """Return the running tasks and the last ones that ended."""
    return gateway.sweeps.tasks()
