"""The newest batches that were not stored, with filters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.admin.request import MAX_ANSWER_BYTES, ControlError
from seqgate.gateway.admin.verdicts import ListVerdictsRequest
from seqgate.gateway.handlers.answering.api import ClientSoftware, client_of
from seqgate.gateway.runtime.partitions.verdicts import VERDICTS_KEPT
from seqgate.gateway.security.principals import ClientIdentity
from tests.gateway.admin.answers import answer
from tests.gateway.handlers.support import FakePeer, Node, open_node
from tests.support.batches import Batch, records

GAP = int(ErrorCode.out_of_order_sequence_number)
CLIENT = ClientIdentity("c", "10.0.0.7", "User:ann", "librdkafka 2.11.0")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as node:
        yield node


def refuse(node: Node, topic: str = "a", index: int = 0, producer_id: int = 1, text: str = "c") -> None:
    data = memoryview(Batch(records(1)).of(producer_id, 0, 5).encode())
    verdicts = node.services.partitions.counters.verdicts
    verdicts.refusal(topic, index, data, 99, GAP, CLIENT, text)


async def numbers(node: Node, request: ListVerdictsRequest) -> list[int]:
    return [row.number for row in (await answer(node, request)).verdicts]


async def test_the_newest_come_first(node: Node) -> None:
    assert (await answer(node, ListVerdictsRequest())).verdicts == []
    for _ in range(5):
        refuse(node)
    assert await numbers(node, ListVerdictsRequest()) == [5, 4, 3, 2, 1]
    assert await numbers(node, ListVerdictsRequest(limit=2)) == [5, 4]
    assert await numbers(node, ListVerdictsRequest(after=3)) == [5, 4]
    here = node.services.node.node_id
    assert await numbers(node, ListVerdictsRequest(after_of={here: 4, here + 1: 9})) == [5]
    assert await numbers(node, ListVerdictsRequest(after_of={here: 7})) == [5, 4, 3, 2, 1], "it counts again"
    assert (await answer(node, ListVerdictsRequest())).kept == VERDICTS_KEPT


async def test_filters(node: Node) -> None:
    refuse(node, "a", 0, 1)
    refuse(node, "a", 1, 1)
    refuse(node, "b", 1, 2)
    node.services.partitions.counters.verdicts.refusal("b", 0, None, 99, GAP, CLIENT, "no records")
    assert await numbers(node, ListVerdictsRequest(topic="a")) == [2, 1]
    assert await numbers(node, ListVerdictsRequest(topic="a", partition=0)) == [1]
    assert await numbers(node, ListVerdictsRequest(partition=1)) == [3, 2]
    assert await numbers(node, ListVerdictsRequest(producer_id=2)) == [3]
    assert await numbers(node, ListVerdictsRequest(topic="none")) == []
    assert await numbers(node, ListVerdictsRequest(topic="b", limit=1, after=2)) == [4]


@pytest.mark.parametrize("limit", [0, -1, 10_001])
async def test_a_limit_out_of_range(node: Node, limit: int) -> None:
    with pytest.raises(ControlError, match=f"limit must be between 1 and 10000, not {limit}"):
        await answer(node, ListVerdictsRequest(limit=limit))


async def test_all_verdicts_fit_into_one_answer(node: Node) -> None:
    """A client chooses a client id and a principal that are as long as possible, and each character needs
    four bytes.
    """
    verdicts = node.services.partitions.counters.verdicts
    peer = FakePeer()
    peer.peer_host, peer.principal = "ffff:" * 7 + "ffff", "User:" + "\U0010ffff" * 8_000
    peer.software = ClientSoftware("s" * 256, "v" * 256)
    client = client_of(peer, "\U0010ffff" * 8_000)
    for _ in range(VERDICTS_KEPT + 3):
        verdicts.refusal("t" * 249, 99, None, 99, GAP, client, "m" * 10_000)
    page = await answer(node, ListVerdictsRequest(limit=VERDICTS_KEPT))
    assert len(page.verdicts) == VERDICTS_KEPT
    assert len(msgspec.json.encode(page)) < MAX_ANSWER_BYTES
