"""The operations that any cluster answers over the Kafka protocol, and the client that commands ask."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar, cast

import msgspec

from seqgate.gateway.admin.remote.cluster import Cluster, finished
from seqgate.gateway.admin.request import RUNNING, PagedRequest, Request

A = TypeVar("A")


def operation_of(request: type[Request[Any]]) -> Callable[[Cluster, Any], Any]:
    """Return what answers a request: an entry of `OPERATIONS` in the module `remote` of its subject. It is
    imported for its request, because one command needs one of them.
    """
    subject = request.__module__.rpartition(".")[0]
    found: Callable[[Cluster, Any], Any] = import_module(f"{subject}.remote").OPERATIONS[request]
    return found


class RemoteClient(msgspec.Struct, frozen=True):
    """Sends the requests of commands to a cluster (`--bootstrap`). Every answer comes in one page."""

    cluster: Cluster

    def ask(self, request: Request[A]) -> A:
        """Return the answer of the cluster."""
        if isinstance(request, PagedRequest):
            request = msgspec.structs.replace(request, limit=sys.maxsize)
        answer = operation_of(type(request))(self.cluster, request)
        return cast("A", finished(answer) if inspect.iscoroutine(answer) else answer)

    def ask_or_read(self, request: Request[A]) -> tuple[str, A]:
        """Return "running" with the answer of the cluster."""
        return RUNNING, self.ask(request)
