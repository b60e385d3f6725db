from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering.api import ClientSoftware
from tests.gateway.handlers.support import FakePeer, Node, open_node
from tests.gateway.handlers.telemetry.support import ask, push, subscribe

OWN_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as node:
        yield node


async def test_a_client_without_an_id_gets_one(node: Node) -> None:
    first, second = await ask(node), await ask(node)
    assert first.error_code == second.error_code == 0
    assert first.client_instance_id is not None
    assert first.client_instance_id != second.client_instance_id
    assert node.services.telemetry.known_clients == 2


async def test_a_client_keeps_its_id(node: Node) -> None:
    assert (await ask(node, OWN_ID)).client_instance_id == OWN_ID


async def test_without_subscriptions_a_client_pushes_nothing(node: Node) -> None:
    answer = await ask(node)
    assert answer.requested_metrics == ()
    assert answer.push_interval.total_seconds() == 300
    assert answer.accepted_compression_types == (4, 3, 1, 2)
    assert answer.telemetry_max_bytes == 1 << 20
    assert answer.delta_temporality


async def test_a_client_gets_what_is_subscribed_for_it(node: Node) -> None:
    node.peer.software = ClientSoftware("apache-kafka-java", "4.3.1")
    await subscribe(
        node, "a", metrics="x.", interval_ms="1000", match="client_software_name=apache-kafka-java"
    )
    await subscribe(node, "b", metrics="y.", interval_ms="500", match="client_id=another")
    await subscribe(
        node, "c", metrics="z.", match="client_source_port=50312,client_source_address=127\\.0\\.0\\.1"
    )
    answer = await ask(node)
    assert answer.requested_metrics == ("x.", "z.")
    assert answer.push_interval.total_seconds() == 1


async def test_a_client_that_asks_too_early_is_throttled(node: Node) -> None:
    await subscribe(node, metrics="*", interval_ms="1000")
    asked = await ask(node, OWN_ID)
    node.clock.time_ms += 999
    early = await ask(node, OWN_ID)
    assert early.error_code is ErrorCode.throttling_quota_exceeded
    assert (early.client_instance_id, early.requested_metrics) == (None, ())
    node.clock.time_ms += 1
    assert (await ask(node, OWN_ID)).subscription_id == asked.subscription_id


async def test_a_change_of_the_subscriptions_is_told_at_once(node: Node) -> None:
    await subscribe(node, metrics="a", interval_ms="1000")
    before = await ask(node, OWN_ID)
    await subscribe(node, metrics="b")
    assert await push(node, before) == "unknown_subscription_id"
    after = await ask(node, OWN_ID)
    assert after.error_code == 0
    assert after.requested_metrics == ("b",)
    assert after.subscription_id != before.subscription_id


async def test_a_removed_subscription_is_told(node: Node) -> None:
    await subscribe(node, metrics="a", interval_ms="1000")
    before = await ask(node, OWN_ID)
    await subscribe(node, metrics=None, interval_ms=None)
    after = await ask(node, OWN_ID)
    assert after.requested_metrics == ()
    assert after.subscription_id != before.subscription_id


async def test_a_restarted_gateway_gives_the_same_subscription(tmp_path: Path) -> None:
    answers = []
    async with open_node(tmp_path) as node:
        await subscribe(node, metrics="a,b", interval_ms="1000")
        answers.append(await ask(node, OWN_ID))
    async with open_node(tmp_path) as node:
        answers.append(await ask(node, OWN_ID))
    assert answers[0] == answers[1]
    assert answers[0].requested_metrics == ("a", "b")


async def test_a_closed_connection_forgets_its_client(node: Node) -> None:
    await ask(node, OWN_ID)
    assert (await ask(node, OWN_ID)).error_code is ErrorCode.throttling_quota_exceeded
    node.peer.hang_up()
    assert node.services.telemetry.known_clients == 0
    node.peer = FakePeer()
    assert (await ask(node, OWN_ID)).error_code is ErrorCode.none


async def test_a_silent_client_is_forgotten(node: Node) -> None:
    await subscribe(node, metrics="*", interval_ms="100")
    await ask(node)
    node.clock.time_ms += 59_999
    node.services.telemetry.expire()
    assert node.services.telemetry.known_clients == 1
    node.clock.time_ms += 1
    node.services.telemetry.expire()
    assert node.services.telemetry.known_clients == 0


async def test_the_number_of_known_clients_is_bounded(tmp_path: Path) -> None:
    async with open_node(tmp_path, "seqgate.telemetry.clients.max=3") as node:
        for _ in range(5):
            await ask(node)
        assert node.services.telemetry.known_clients == 3
