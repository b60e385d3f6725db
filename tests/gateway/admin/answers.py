"""Answers of a node to requests of commands, without a control socket."""

from __future__ import annotations

from typing import TypeVar

from seqgate.gateway.admin.operation import LiveGateway
from seqgate.gateway.admin.operations import answer_live
from seqgate.gateway.admin.request import PagedRequest, Request
from seqgate.gateway.admin.server import Traffic
from tests.gateway.handlers.support import NOW_MS, Node

A = TypeVar("A")
TRAFFIC = Traffic(connections=4, refused_connections=1, requests=99, failed_logins=7)
UPTIME_MS = 5_000


def live(node: Node) -> LiveGateway:
    """Return the node as a running gateway whose uptime is `UPTIME_MS`."""
    return LiveGateway(node.services, lambda: TRAFFIC, NOW_MS, lambda: UPTIME_MS / 1000)


async def answer(node: Node, request: Request[A]) -> A:
    """Return the answer to a request. Raises ControlError."""
    result: A = await answer_live(live(node), request)
    return result


async def all_pages(node: Node, request: Request[A]) -> list[A]:
    """Return all pages of an answer. Raises ControlError."""
    pages = []
    following: Request[A] | None = request
    while following is not None:
        assert len(pages) < 1_000
        pages.append(await answer(node, following))
        following = following.next_page(pages[-1]) if isinstance(following, PagedRequest) else None
    return pages
