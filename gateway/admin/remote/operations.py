"""The operations that any cluster answers over the Kafka protocol, and the client that commands ask."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar, cast

import msgspec

from seqgate.gateway.admin.client import answer_of, joined_pages
from seqgate.gateway.admin.remote.broker import TIMEOUT_S, BrokerAddress, ask_broker, metadata
from seqgate.gateway.admin.remote.cluster import Cluster, finished
from seqgate.gateway.admin.request import RUNNING, ControlAnswer, ControlError, PagedRequest, Request

A = TypeVar("A")


def operation_of(request: type[Request[Any]]) -> Callable[[Cluster, Any], Any]:
    """Return what answers a request: an entry of `OPERATIONS` in its module."""
    found: Callable[[Cluster, Any], Any] = import_module(request.__module__).OPERATIONS[request]
    return found


def told_by(address: BrokerAddress, request: Request[A], timeout_s: float = TIMEOUT_S) -> A:
    """Return what a gateway answers for itself to a request. Raises ControlError."""
    return told_in(ask_broker(address, question_of(request), timeout_s=timeout_s), request)


def question_of(request: Request[Any]) -> Any:
    """Return the DescribeCluster request that asks a gateway about itself."""
    from seqgate.gateway.protocol.kafka_4_4 import QUESTION_API  # noqa: PLC0415 - for some commands
    from seqgate.gateway.protocol.messages import request_type  # noqa: PLC0415

    question = msgspec.json.encode(request).decode()
    return request_type(*QUESTION_API)(include_cluster_authorized_operations=False, question=question)


def told_in(described: Any, request: Request[A]) -> A:
    """Return what a gateway tells in its answer to `question_of`. Raises ControlError."""
    if described.answer is None:
        raise ControlError("it is no Seqgate gateway, or one of an earlier release")
    try:
        answer = msgspec.json.decode(described.answer, type=ControlAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ControlError(f"its answer is not understood: {error}") from None
    return answer_of(answer, request)


class RemoteClient(msgspec.Struct, frozen=True):
    """Sends the requests of commands to a cluster (`--bootstrap`). Every answer comes in one page."""

    cluster: Cluster

    def ask(self, request: Request[A]) -> A:
        """Return the answer of the cluster. Raises ControlError."""
        if request.is_of_each:
            return joined_pages(request, *self.ask_each(request))
        if isinstance(request, PagedRequest):
            request = msgspec.structs.replace(request, limit=sys.maxsize)
        answer = operation_of(type(request))(self.cluster, request)
        return cast("A", finished(answer) if inspect.iscoroutine(answer) else answer)

    def ask_each(self, request: Request[A]) -> tuple[list[A], list[str]]:
        """Return the answers of all gateways to a request that each answers for itself, at least one, and a
        sentence about each without. Raises ControlError.
        """
        answers, missing = [], []
        for broker in metadata(self.cluster.reached, TIMEOUT_S, with_topics=False).brokers:
            try:
                answers.append(told_by(self.cluster.reached.other(broker.host, int(broker.port)), request))
            except ControlError as error:
                missing.append(f"broker {broker.node_id} gave no answer: {error}")
        if not answers:
            raise ControlError("; ".join(missing) or "the cluster has no brokers")
        return answers, missing

    def ask_running_or_data_directory(self, request: Request[A]) -> tuple[str, A]:
        """Return "running" with the answer of the cluster."""
        return RUNNING, self.ask(request)
