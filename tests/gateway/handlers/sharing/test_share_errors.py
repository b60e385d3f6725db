"""Errors of share sessions: no session exists for the epoch, or a partition does not exist."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from seqgate.gateway.handlers.sharing import share_fetch
from seqgate.gateway.protocol.messages import build
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.support import Node, open_node
from tests.gateway.handlers.two_brokers import ADDRESSES, OTHER, THIS, broker, commit, partition
from tests.gateway.runtime.share_requests import (
    GROUP,
    SETTINGS,
    TOPIC,
    acknowledge,
    acquired,
    begin,
    fetch,
    write,
)

ACCEPT = 1


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path, *SETTINGS) as opened:
        yield opened


@pytest.mark.parametrize(
    ("session_epoch", "error"),
    [
        (0, ErrorCode.invalid_share_session_epoch),
        (1, ErrorCode.share_session_not_found),
        (-1, ErrorCode.share_session_not_found),
    ],
)
async def test_acknowledgements_without_a_session(node: Node, session_epoch: int, error: ErrorCode) -> None:
    topic_id = await begin(node)
    answer = await acknowledge(node, topic_id, 0, 0, ACCEPT, session_epoch=session_epoch)
    assert answer.error_code is error


async def test_a_missing_partition_is_reported_even_if_the_answer_is_full_of_records(node: Node) -> None:
    topic_id = await begin(node)

    module = load_payload_module(share_fetch.SHARE_FETCH_API.key, 2, EntityType.request)
    rows = tuple(
        build(module.FetchPartition, partition_index=index, acknowledgement_batches=()) for index in (0, 9)
    )
    topics = (build(module.FetchTopic, topic_id=topic_id, partitions=rows),)
    await fetch(node, topic_id, topics=topics)
    for session_epoch in (1, 2):
        await write(node, 3)
        answer = await fetch(node, topic_id, session_epoch=session_epoch, topics=(), max_records=1)
        found = {row.partition_index: row for row in answer.responses[0].partitions}
        assert found[0].acquired_records
        assert found[9].error_code is ErrorCode.unknown_topic_or_partition


async def test_offsets_of_a_missing_partition_are_unknown_without_an_error(node: Node) -> None:
    """As at Apache Kafka, which takes half a minute for the answer: `make test-nightly` compares them."""
    await begin(node)
    asked = [{"group_id": GROUP, "topics": [{"topic_name": TOPIC, "partitions": [0, 7]}]}]
    answer = await Asking(node).ask("describe_share_group_offsets", 1, groups=asked)
    _, missing = answer["groups"][0]["topics"][0]["partitions"]
    assert (missing["partition_index"], missing["start_offset"], missing["lag"]) == (7, -1, -1)
    assert (missing["error_code"], missing["error_message"]) == (0, None)


async def test_members_learn_the_leader_of_a_partition_that_another_broker_leads(node: Node) -> None:
    topic_id = await begin(node)
    await fetch(node, topic_id)
    await write(node, 3)
    assert acquired(await fetch(node, topic_id, session_epoch=1)) == [(0, 2)]
    await commit(node, broker(THIS), broker(OTHER), partition(topic_id, 0, OTHER, 4))
    for answer in (
        await fetch(node, topic_id, session_epoch=2),
        await acknowledge(node, topic_id, 0, 2, ACCEPT, session_epoch=3),
    ):
        (row,) = answer.responses[0].partitions
        assert ErrorCode(row.error_code) is ErrorCode.not_leader_or_follower
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (OTHER, 4)
        (endpoint,) = answer.node_endpoints
        assert (endpoint.node_id, endpoint.host, endpoint.port) == (OTHER, *ADDRESSES[OTHER])
