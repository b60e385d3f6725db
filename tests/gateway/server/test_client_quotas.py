"""Requests and connections under client quotas: charged, throttled, muted."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.handlers import APIS
from seqgate.gateway.handlers.answering.api import Deferred
from seqgate.gateway.server import dispatcher as dispatcher_module
from seqgate.gateway.server.dispatcher import Dispatcher
from seqgate.gateway.server.server import Server
from tests.gateway.handlers.support import FakePeer, Node, open_node
from tests.gateway.server.quota_client import Client, limit, serving
from tests.support.wire import Plain, encode


async def test_a_produce_over_quota_is_stored_and_throttled(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        await client.produce()
        await limit(client.node, "producer_byte_rate", 100.0)
        first = await client.produce(800)
        assert first is not None
        assert first["throttle_time"] == 0
        second = await client.produce(800)
        assert second is not None
        (muted_ms,) = set(client.peer.muted_ms)
        assert second["throttle_time"] == muted_ms
        assert 7_000 < muted_ms < 10_000
        offset = second["responses"][0]["partition_responses"][0]["base_offset"]
        assert offset == 2


async def test_a_produce_without_an_answer_mutes_its_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        await limit(client.node, "producer_byte_rate", 100.0)
        for _ in range(2):
            assert await client.produce(800, acks=0) is None
        assert len(client.peer.muted_ms) == 1


async def test_repeats_are_charged_too_and_take_the_short_way_again_without_a_quota(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        for _ in range(3):
            await client.produce()
        await limit(client.node, "producer_byte_rate", 100.0)
        answers = [await client.produce() for _ in range(3)]
        assert [bool(answer and answer["throttle_time"]) for answer in answers] == [True, True, True]
        await limit(client.node, "producer_byte_rate", None)
        answer = await client.produce()
        assert answer is not None
        assert answer["throttle_time"] == 0
        assert not client.node.services.node.quotas.is_on


async def test_the_quota_of_another_user_and_another_kind_do_not_matter(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        await limit(client.node, "producer_byte_rate", 1.0, (("user", "ann"),))
        await limit(client.node, "consumer_byte_rate", 1.0)
        answer = await client.produce()
        assert answer is not None
        assert answer["throttle_time"] == 0
        assert client.peer.muted_ms == []
        client.peer.principal = "User:ann"
        answer = await client.produce()
        assert answer is not None
        assert answer["throttle_time"] > 0


async def test_a_fetch_over_quota_has_a_throttle_time_and_no_records(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        await client.produce(5000)
        await limit(client.node, "consumer_byte_rate", 1000.0)
        first = await client.fetch()
        assert first["throttle_time"] == 0
        assert len(first["responses"][0]["partitions"][0]["records"]) > 5000
        second = await client.fetch(session_epoch=0)
        assert second["throttle_time"] > 0
        assert (second["error_code"], second["session_id"], second["responses"]) == (0, 0, [])
        assert client.peer.muted_ms == [second["throttle_time"]]
        client.node.clock.time_ms += 11_000
        third = await client.fetch()
        assert third["throttle_time"] == 0
        assert third["responses"]


async def test_a_batch_that_exceeds_the_quota_by_itself_is_sent_after_the_throttle_time(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as client:
        await client.produce(5000)
        await limit(client.node, "consumer_byte_rate", 100.0)
        first = await client.fetch()
        assert 40_000 < first["throttle_time"] < 42_000
        assert first["responses"] == []
        client.node.clock.time_ms += first["throttle_time"]
        second = await client.fetch()
        assert second["throttle_time"] == 0
        assert len(second["responses"][0]["partitions"][0]["records"]) > 5000


async def test_a_throttled_fetch_keeps_its_session(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        await client.produce(5000)
        await limit(client.node, "consumer_byte_rate", 1000.0)
        first = await client.fetch(session_epoch=0)
        session_id = first["session_id"]
        assert session_id
        throttled = await client.fetch(session_id=session_id, session_epoch=1)
        assert throttled["throttle_time"] > 0
        assert (throttled["session_id"], throttled["responses"]) == (session_id, [])
        client.node.clock.time_ms += 11_000
        third = await client.fetch(session_id=session_id, session_epoch=2)
        assert (third["error_code"], third["throttle_time"]) == (0, 0)
        assert third["responses"]


async def test_no_fetch_reads_more_than_the_windows_allow(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        for _ in range(10):
            await client.produce(1000)
        await limit(client.node, "consumer_byte_rate", 300.0)
        answer = await client.fetch()
        assert 1000 < len(answer["responses"][0]["partitions"][0]["records"]) <= 3000


async def test_time_over_quota_throttles_for_a_window_at_most(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        node = client.node
        await limit(node, "request_percentage", 0.001)
        seconds = iter(range(10**6))
        node.services.node.quotas.seconds = lambda: next(seconds)
        answer = await client.ask("metadata", 9, topics=[])
        assert answer["throttle_time"] == 1000
        assert client.peer.muted_ms == [1000]
        produced = await client.produce()
        assert produced is not None
        assert produced["throttle_time"] == 1000


async def test_the_end_of_a_transaction_is_nobodys_use(tmp_path: Path) -> None:
    """A coordinator sends the markers to this gateway for a client that it has charged itself."""
    async with serving(tmp_path) as client:
        quotas = client.node.services.node.quotas
        await limit(client.node, "request_percentage", 0.001)
        seconds = iter(range(10**6))
        quotas.seconds = lambda: next(seconds)
        answer = await client.ask("write_txn_markers", 1, markers=[])
        assert answer["markers"] == []
        assert client.peer.muted_ms == []
        assert (await client.ask("metadata", 9, topics=[]))["throttle_time"] == 1000


@pytest.mark.parametrize("version", [5, 7])
async def test_changes_of_topics_over_quota(tmp_path: Path, version: int) -> None:
    """Versions whose clients know THROTTLING_QUOTA_EXCEEDED are refused; older ones are throttled."""
    async with serving(tmp_path) as client:
        await limit(client.node, "controller_mutation_rate", 1.0)
        answers = [
            await client.create(name, version=version, partitions=8) for name in ("one", "two", "three")
        ]
        codes = [answer["topics"][0]["error_code"] for answer in answers]
        throttled = [answer["throttle_time"] for answer in answers]
        if version == 7:
            assert codes == [0, 0, 89]
            assert throttled == [0, 0, 5000]
        else:
            assert codes == [0, 0, 0]
            assert throttled == [0, 5000, 13000]
        names = client.node.services.topics.metadata_log.image.topics_by_name
        assert ("three" in names) == (version == 5)


async def test_deleting_and_growing_topics_over_quota(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        for name in ("one", "two"):
            await client.create(name, partitions=6)
        await limit(client.node, "controller_mutation_rate", 1.0)

        def grown(name: str) -> Plain:
            return {"name": name, "count": 12, "assignments": None}

        answer = await client.ask(
            "create_partitions", 3, topics=[grown("one"), grown("two"), grown("nowhere")], timeout=5000
        )
        assert {row["name"]: row["error_code"] for row in answer["results"]} == {
            "one": 0,
            "two": 0,
            "nowhere": 3,
        }
        assert answer["throttle_time"] == 0
        answer = await client.ask("create_partitions", 3, topics=[grown("orders")], timeout=5000)
        assert answer["results"][0]["error_code"] == 89
        assert answer["throttle_time"] == 1000
        client.node.clock.time_ms += 2000
        answer = await client.ask(
            "delete_topics",
            6,
            topics=[{"name": name, "topic_id": None} for name in ("one", "two")],
            timeout=5000,
        )
        assert {row["name"]: row["error_code"] for row in answer["responses"]} == {"one": 0, "two": 89}
        assert answer["throttle_time"] == 11_000
        assert set(client.node.services.topics.metadata_log.image.topics_by_name) == {"orders", "two"}


async def test_validate_only_is_charged_as_in_kafka(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        await limit(client.node, "controller_mutation_rate", 1.0)
        await client.create("one", partitions=12, validate_only=True)
        answer = await client.create("two", validate_only=True)
        assert answer["topics"][0]["error_code"] == 89


async def test_quotas_of_the_metadata_count_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        await limit(client.node, "producer_byte_rate", 1.0)
    async with open_node(tmp_path) as node:
        again = Client(node, Dispatcher(APIS, node.services), node.peer)
        answer = await again.produce()
        assert answer is not None
        assert answer["throttle_time"] > 0


async def one_connection_a_second(node: Node) -> Server:
    """Return a server to which 127.0.0.1 may open one connection a second."""
    await limit(node, "connection_creation_rate", 1.0, (("ip", "127.0.0.1"),))
    services = node.services
    dispatcher = Dispatcher(APIS, services)
    loop = asyncio.get_running_loop()
    return Server(loop, services.node.config, dispatcher, quotas=services.node.quotas)


async def test_an_address_over_quota_is_refused_late(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        server = await one_connection_a_second(node)
        peers: list[Any] = [FakePeer() for _ in range(12)]
        closing_s = [server.admit(peer) for peer in peers]
        assert closing_s[:10] == [None] * 10
        assert closing_s[10:] == [1.0, 1.0]
        other: Any = FakePeer()
        other.peer_host = "192.0.2.1"
        assert server.admit(other) is None
        assert not node.services.node.quotas.is_on


async def test_a_connection_that_is_refused_late_takes_no_room(tmp_path: Path) -> None:
    async with open_node(tmp_path, "max.connections=11") as node:
        server = await one_connection_a_second(node)
        peers: list[Any] = [FakePeer() for _ in range(30)]
        assert [server.admit(peer) for peer in peers] == [None] * 10 + [1.0] * 20
        others: list[Any] = [FakePeer(), FakePeer()]
        for other in others:
            other.peer_host = "192.0.2.1"
        assert [server.admit(other) for other in others] == [None, 0.0]
        for refused in (*peers[10:], others[1]):
            server.dismiss(refused)
        assert server.admit(others[1]) == 0.0
        server.dismiss(others[1])
        server.dismiss(peers[0])
        assert server.admit(others[1]) is None


async def test_a_version_of_api_versions_that_is_too_new_is_refused_as_without_quotas(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        frame = memoryview(struct.pack(">hhih", 18, 99, 7, -1))
        refused = client.dispatcher.begin(frame, client.peer)
        await limit(client.node, "request_percentage", 1e-9)
        assert client.dispatcher.begin(frame, client.peer) == refused


async def test_an_address_is_found_however_it_is_written(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        await limit(node, "connection_creation_rate", 1.0, (("ip", "2001:DB8:0:0::1"),))
        quotas = node.services.node.quotas
        assert [quotas.delay_of_connection("2001:db8::1") for _ in range(11)] == [0] * 10 + [1000]
        assert quotas.delay_of_connection("2001:db8::2") == 0
        await limit(node, "connection_creation_rate", 1.0, (("ip", "192.0.2.1"),))
        assert [quotas.delay_of_connection("::ffff:192.0.2.1") for _ in range(11)] == [0] * 10 + [1000]


async def test_made_up_client_ids_need_no_more_memory_than_allowed(tmp_path: Path) -> None:
    async with serving(tmp_path, "seqgate.client.quotas.measured.max=20") as client:
        for key in ("producer_byte_rate", "request_percentage", "consumer_byte_rate"):
            await limit(client.node, key, 1000.0, (("client-id", None),))
        quotas = client.node.services.node.quotas
        for number in range(200):
            frame = struct.pack(">hhi", 3, 9, number) + struct.pack(">h", 4) + b"%04d" % number
            begun = client.dispatcher.begin(memoryview(frame + b"\0\1\0\0\0\0"), client.peer)
            while isinstance(begun, Deferred) and begun.answer is None:
                await asyncio.sleep(0)
        assert len(quotas.request.meters) == 21
        client.node.clock.time_ms += 3_600_000
        for _ in range(10):
            await client.ask("metadata", 9, topics=[])
        assert len(quotas.request.meters) <= 1


@pytest.mark.parametrize("where", ["decoding", "encoding"])
async def test_the_time_of_threads_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    async with serving(tmp_path) as client:
        node = client.node
        await limit(node, "request_percentage", 0.001)
        now_s = [0.0]
        node.services.node.quotas.seconds = lambda: now_s[0]

        def slow(work: Callable[..., Any]) -> Callable[..., Any]:
            def take_long(*arguments: Any) -> Any:
                now_s[0] += 0.1
                return work(*arguments)

            return take_long

        topics = [{"name": f"no-such-topic-{number:06d}"} for number in range(3000)]
        assert (await client.ask("metadata", 4, topics=topics[:1]))["throttle_time"] == 0
        if where == "encoding":
            encode_slowly = slow(dispatcher_module.encode_response)
            monkeypatch.setattr(dispatcher_module, "encode_response", encode_slowly)
            answer = await client.ask("list_groups", 4, states_filter=[])
        else:
            looked_up = client.dispatcher._schemas[3, 4]
            client.dispatcher._schemas[3, 4] = (
                looked_up[0],
                looked_up[1]._replace(read=slow(looked_up[1].read), entity_type=None),
            )
            answer = await client.ask("metadata", 4, topics=topics, allow_auto_topic_creation=False)
        assert answer["throttle_time"] == 1000


async def test_a_client_that_is_not_known_yet_uses_up_nobodys_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged: list[Any] = []
    honest = dispatcher_module.Charge

    def charge(*given: Any) -> Any:
        charged.append(given)
        return honest(*given)

    monkeypatch.setattr(dispatcher_module, "Charge", charge)
    async with serving(tmp_path) as client:
        await limit(client.node, "request_percentage", 1.0)
        asked = encode("api_versions", 3, {"client_software_name": "a", "client_software_version": "1"})
        assert client.dispatcher.begin_uncharged(memoryview(asked), client.peer)
        assert charged == []
        client.dispatcher.begin(memoryview(asked), client.peer)
        assert len(charged) == 1
