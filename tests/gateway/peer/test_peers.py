"""Requests to other gateways: pipelined over one connection each, refused when nobody can answer."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.types import GroupId
from kio.static.primitive import i32

from seqgate.gateway.config import load_config
from seqgate.gateway.peer import one_peer
from seqgate.gateway.peer.peers import PeerAddress, Peers, PeerUnavailable
from seqgate.gateway.protocol.messages import build, encode_response
from tests.gateway.peer.fake_broker import HEARTBEAT, fake_broker

PATIENCE_S = 120.0
OTHER = 2


def heartbeat(generation: int = 0) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=GroupId("g"), generation_id=i32(generation), member_id="m")


def beaten(request: Any) -> Any:
    """Answer a heartbeat with its generation for the error code."""
    return build(HeartbeatResponse, error_code=request.generation_id)


def silent(_: Any) -> None:
    """Answer nothing."""


class Addresses(dict[int, PeerAddress]):
    """The live brokers, which a test changes."""


@pytest.fixture
def addresses() -> Addresses:
    return Addresses()


@pytest.fixture
async def peers(addresses: Addresses) -> AsyncIterator[Peers]:
    asking = Peers(load_config(), 1, addresses.get)
    yield asking
    await asking.close()


class TestAnswers:
    async def test_an_answer_of_the_same_version_comes_with_plain_error_codes(
        self, peers: Peers, addresses: Addresses
    ) -> None:
        async with fake_broker(beaten) as broker:
            addresses[OTHER] = broker.address
            answer = await peers.ask(OTHER, heartbeat(25))
        assert isinstance(answer, HeartbeatResponse)
        assert answer.error_code == 25
        assert broker.client_ids == {"broker-1"}

    async def test_requests_go_over_one_connection_in_order_and_before_answers(
        self, peers: Peers, addresses: Addresses
    ) -> None:
        held: list[Any] = []
        async with fake_broker(held.append) as broker, asyncio.timeout(PATIENCE_S):
            addresses[OTHER] = broker.address
            asked = [asyncio.create_task(peers.ask(OTHER, heartbeat(number))) for number in range(20)]
            await broker.got(20)
            assert [request.generation_id for request in broker.requests] == list(range(20))
            assert broker.connections == 1
            await peers.close()
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(outcome, PeerUnavailable) for outcome in outcomes)

    async def test_a_request_apart_waits_for_no_answer_to_another(
        self, peers: Peers, addresses: Addresses
    ) -> None:
        def all_but_the_first(request: Any) -> Any:
            return beaten(request) if request.generation_id else None

        async with fake_broker(all_but_the_first) as broker, asyncio.timeout(PATIENCE_S):
            addresses[OTHER] = broker.address
            waiting = asyncio.create_task(peers.ask(OTHER, heartbeat(0), timeout_s=PATIENCE_S))
            await broker.got(1)
            apart = peers.apart()
            assert (await apart.ask(OTHER, heartbeat(25))).error_code == 25
            await apart.close()
            assert (broker.connections, waiting.done()) == (2, False)
            waiting.cancel()

    async def test_each_gets_its_own_answer(self, peers: Peers, addresses: Addresses) -> None:
        async with fake_broker(beaten) as broker:
            addresses[OTHER] = broker.address
            answers = await asyncio.gather(*(peers.ask(OTHER, heartbeat(n)) for n in range(250)))
        assert [answer.error_code for answer in answers] == list(range(250))
        assert broker.connections == 1

    async def test_an_answer_to_a_caller_that_left_is_dropped(
        self, peers: Peers, addresses: Addresses
    ) -> None:
        async with fake_broker(beaten) as broker, asyncio.timeout(PATIENCE_S):
            addresses[OTHER] = broker.address
            await peers.ask(OTHER, heartbeat(1))
            left = asyncio.create_task(peers.ask(OTHER, heartbeat(2)))
            await broker.got(1)
            left.cancel()
            with pytest.raises(asyncio.CancelledError):
                await left
            assert (await peers.ask(OTHER, heartbeat(3))).error_code == 3
            assert broker.connections == 1


class TestUnavailable:
    async def test_unknown_and_fenced_brokers_are_refused_at_once(self, peers: Peers) -> None:
        with pytest.raises(PeerUnavailable, match="broker 2 is unknown or fenced"):
            await peers.ask(OTHER, heartbeat())

    async def test_a_refused_connection_is_retried_after_a_delay(
        self, peers: Peers, addresses: Addresses, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with fake_broker(beaten) as broker:
            address = broker.address
        addresses[OTHER] = address
        monkeypatch.setattr(one_peer, "FIRST_DELAY_S", 3600.0)
        monkeypatch.setattr(one_peer, "MOST_DELAY_S", 3600.0)
        with pytest.raises(PeerUnavailable, match="no connection"):
            await peers.ask(OTHER, heartbeat())
        async with fake_broker(beaten, address.port) as broker:
            with pytest.raises(PeerUnavailable, match="no connection"):
                await peers.ask(OTHER, heartbeat())
            assert broker.connections == 0
            # A new address has no failed attempt.
            addresses[OTHER] = PeerAddress("localhost", address.port)
            assert (await peers.ask(OTHER, heartbeat(5))).error_code == 5

    async def test_a_host_that_can_not_be_looked_up_is_refused(
        self, peers: Peers, addresses: Addresses
    ) -> None:
        addresses[OTHER] = PeerAddress("a..b", 9092)
        with pytest.raises(PeerUnavailable, match=r"its host 'a\.\.b' can't be looked up"):
            await peers.ask(OTHER, heartbeat())

    @pytest.mark.parametrize(("quiet_s", "reports"), [(3600.0, 0), (0.0, 1)], ids=["just now", "for long"])
    async def test_only_failures_that_last_are_reported_and_each_reason_once(
        self,
        peers: Peers,
        addresses: Addresses,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        quiet_s: float,
        reports: int,
    ) -> None:
        for name, value in (("UNREPORTED_S", quiet_s), ("FIRST_DELAY_S", 0.0), ("MOST_DELAY_S", 0.0)):
            monkeypatch.setattr(one_peer, name, value)
        async with fake_broker(beaten) as broker:
            address = broker.address
        addresses[OTHER] = address
        for _ in range(3):
            with pytest.raises(PeerUnavailable, match="no connection"):
                await peers.ask(OTHER, heartbeat())
        said = [
            text for text in map(logging.LogRecord.getMessage, caplog.records) if "can't be asked" in text
        ]
        assert len(said) == reports

    @pytest.mark.tier("all")
    async def test_the_error_of_an_attempt_whose_callers_left_is_taken(
        self, peers: Peers, addresses: Addresses, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun, may_fail, failed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        untaken: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: untaken.append(context))

        async def dialled(*_: object) -> Any:
            begun.set()
            await may_fail.wait()
            failed.set()
            raise PeerUnavailable("no connection")

        monkeypatch.setattr(one_peer, "dial", dialled)
        addresses[OTHER] = PeerAddress("localhost", 1)
        left = asyncio.create_task(peers.ask(OTHER, heartbeat()))
        await begun.wait()
        left.cancel()
        await asyncio.wait([left])
        may_fail.set()
        await failed.wait()
        await asyncio.sleep(0)
        del left
        gc.collect()
        assert not untaken

    async def test_a_broken_connection_fails_its_requests_and_is_opened_again(
        self, peers: Peers, addresses: Addresses
    ) -> None:
        async with fake_broker(silent) as broker, asyncio.timeout(PATIENCE_S):
            addresses[OTHER] = broker.address
            asked = asyncio.create_task(peers.ask(OTHER, heartbeat()))
            await broker.got(1)
            broker.hang_up()
            with pytest.raises(PeerUnavailable, match=r"was closed|broke"):
                await asked
            broker.answer = beaten
            assert (await peers.ask(OTHER, heartbeat(7))).error_code == 7
            assert broker.connections == 2

    async def test_a_silent_broker_is_given_up_with_its_connection(
        self, peers: Peers, addresses: Addresses, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(one_peer, "SILENCE_S", 0.0)  # a busy machine sends the request late
        async with fake_broker(beaten) as broker:
            addresses[OTHER] = broker.address
            await peers.ask(OTHER, heartbeat())
            broker.answer = silent
            with pytest.raises(PeerUnavailable, match=r"no answer within 0\.05 s"):
                await peers.ask(OTHER, heartbeat(), timeout_s=0.05)
            broker.answer = beaten
            assert (await peers.ask(OTHER, heartbeat(7))).error_code == 7
            assert broker.connections == 2

    async def test_an_unknown_version_is_not_sent(self, peers: Peers, addresses: Addresses) -> None:
        async with fake_broker(beaten) as broker:
            addresses[OTHER] = broker.address
            broker.apis[12] = (0, 3)
            with pytest.raises(PeerUnavailable, match="does not know version 4 of HeartbeatRequest"):
                await peers.ask(OTHER, heartbeat())
            with pytest.raises(PeerUnavailable, match="does not know version 5 of ListGroupsRequest"):
                await peers.ask(OTHER, ListGroupsRequest())
            assert broker.requests == []

    async def test_requests_beyond_the_limit_are_refused(
        self, peers: Peers, addresses: Addresses, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(one_peer, "MOST_WAITING", 2)
        async with fake_broker(silent) as broker, asyncio.timeout(PATIENCE_S):
            addresses[OTHER] = broker.address
            asked = [asyncio.create_task(peers.ask(OTHER, heartbeat())) for _ in range(2)]
            await broker.got(2)
            with pytest.raises(PeerUnavailable, match="2 requests wait for it already"):
                await peers.ask(OTHER, heartbeat())
            await peers.close()
            await asyncio.gather(*asked, return_exceptions=True)

    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            (b"\x7f\xff\xff\xff", "claims 2147483647 bytes"),
            (b"\0\0\0\2\0\0", "fewer than its header"),
            (b"\0\0\0\4\0\0\0\x63", "answer to request 99"),
            (b"\0\0\0\5\0\0\0\1\0", "malformed"),
        ],
    )
    async def test_bytes_that_are_no_answer_close_the_connection(
        self, peers: Peers, addresses: Addresses, answer: bytes, reason: str
    ) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(4)
            writer.write(answer)
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        addresses[OTHER] = PeerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
        with pytest.raises(PeerUnavailable, match=reason):
            await peers.ask(OTHER, heartbeat())
        server.close()

    async def test_a_broker_that_accepts_and_says_nothing_is_given_up(
        self, peers: Peers, addresses: Addresses, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(one_peer, "CONNECT_TIMEOUT_S", 0.05)
        # Since Python 3.13 a writer that nobody keeps closes its connection.
        silent: list[asyncio.StreamWriter] = []
        server = await asyncio.start_server(lambda _, writer: silent.append(writer), "127.0.0.1", 0)
        addresses[OTHER] = PeerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
        with pytest.raises(PeerUnavailable, match=r"no connection within 0\.05 s"):
            await peers.ask(OTHER, heartbeat())
        for writer in silent:
            writer.close()
        server.close()

    async def test_nothing_is_asked_after_the_close(self, peers: Peers, addresses: Addresses) -> None:
        async with fake_broker(beaten) as broker:
            addresses[OTHER] = broker.address
            await peers.ask(OTHER, heartbeat())
            await peers.close()
            with pytest.raises(PeerUnavailable, match="this gateway stops"):
                await peers.ask(OTHER, heartbeat())


class TestChanges:
    async def test_a_broker_that_moved_is_asked_at_its_new_address(
        self, peers: Peers, addresses: Addresses
    ) -> None:
        async with fake_broker(silent) as before, fake_broker(beaten) as after, asyncio.timeout(PATIENCE_S):
            addresses[OTHER] = before.address
            asked = asyncio.create_task(peers.ask(OTHER, heartbeat()))
            await before.got(1)
            addresses[OTHER] = after.address
            assert (await peers.ask(OTHER, heartbeat(3))).error_code == 3
            with pytest.raises(PeerUnavailable, match="it has another address now"):
                await asked

    async def test_requests_to_a_broker_that_is_fenced_meanwhile_fail_at_once(
        self, peers: Peers, addresses: Addresses
    ) -> None:
        async with fake_broker(silent) as broker, asyncio.timeout(PATIENCE_S):
            addresses[OTHER] = broker.address
            asked = asyncio.create_task(peers.ask(OTHER, heartbeat()))
            await broker.got(1)
            await peers.metadata_changed(())
            assert not asked.done()
            del addresses[OTHER]
            await peers.metadata_changed(())
            with pytest.raises(PeerUnavailable, match="it is unknown or fenced"):
                await asked

    async def test_a_broker_that_leaves_while_it_is_connected_to_fails_its_requests(
        self, peers: Peers, addresses: Addresses
    ) -> None:
        reached = asyncio.Event()
        server = await asyncio.start_server(lambda *_: reached.set(), "127.0.0.1", 0)
        addresses[OTHER] = PeerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
        async with asyncio.timeout(PATIENCE_S):
            asked = asyncio.create_task(peers.ask(OTHER, heartbeat()))
            await reached.wait()
            del addresses[OTHER]
            await peers.metadata_changed(())
            with pytest.raises(PeerUnavailable):
                await asked
        server.close()

    async def test_an_idle_connection_is_replaced(
        self, peers: Peers, addresses: Addresses, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with fake_broker(beaten) as broker:
            addresses[OTHER] = broker.address
            await peers.ask(OTHER, heartbeat())
            await peers.ask(OTHER, heartbeat())
            assert broker.connections == 1
            monkeypatch.setattr(one_peer, "IDLE_SHARE", 0.0)
            await peers.ask(OTHER, heartbeat())
            assert broker.connections == 2

    async def test_a_replaced_connection_finishes_its_requests(
        self, peers: Peers, addresses: Addresses
    ) -> None:
        async with fake_broker(silent) as broker:
            addresses[OTHER] = broker.address
            waiting = asyncio.create_task(peers.ask(OTHER, heartbeat(7)))
            await broker.got(1)
            peer = peers._by_id[OTHER]
            assert peer._line is not None
            old, (old_writer,) = peer._line.connection, broker.open
            peer._line = peer._line._replace(renew_s=0.0)
            broker.answer = beaten
            assert (await peers.ask(OTHER, heartbeat(1))).error_code == 1
            assert broker.connections == 2
            assert old.closed_because is None
            old_writer.write(encode_response(HEARTBEAT, 2, beaten(broker.requests[0])))
            assert (await waiting).error_code == 7
            assert old.closed_because == "the session of its login ends"


async def test_a_closed_connection_refuses_requests() -> None:
    async with fake_broker(beaten) as broker:
        reader, writer = await asyncio.open_connection(*broker.address)
        closed = one_peer.PeerConnection(reader, writer, b"c")
        closed.close("over")
        closed.close("again")
        with pytest.raises(PeerUnavailable, match="over"):
            await closed.send(heartbeat())
        await closed.finished()
