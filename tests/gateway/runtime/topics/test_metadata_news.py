"""A gateway tells the others that it has changed the metadata: all of them, one at a time, and waits for none
that is silent.
"""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from seqgate.gateway.config import load_config
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.records import BrokerEndpoint, RegisterBrokerRecord
from seqgate.gateway.peer.peers import ANSWER_TIMEOUT_S, Peers, PeerUnavailable
from seqgate.gateway.runtime.topics.brokers import Brokers
from seqgate.gateway.runtime.topics.metadata_news import MetadataNews
from tests.gateway.peer.fake_broker import fake_broker

HERE = 1
PATIENCE_S = 120.0
EVER_S = 60.0
"""More than a test may take: a wait that ends has ended for another reason."""


class Others:
    """The other gateways: each answers a heartbeat once its event is set; those in `away` refuse connections."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.answers: dict[int, asyncio.Event] = {}
        self.away: set[int] = set()
        self.behind: set[int] = set()

    async def ask(self, node_id: int, request: Any, *, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        assert timeout_s == ANSWER_TIMEOUT_S, "a short time limit would close the connection for all requests"
        assert (request.broker_id, request.broker_epoch) == (HERE, 10)
        self.asked.append((node_id, request.current_metadata_offset))
        if node_id in self.answers:
            await self.answers[node_id].wait()
        await asyncio.sleep(0)
        if node_id in self.away:
            raise PeerUnavailable(f"broker {node_id} is away")
        return SimpleNamespace(error_code=0, is_caught_up=node_id not in self.behind)


class Scene:
    """Gateway 1 among others, and the end of its metadata."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.others = Others()
        self.offset = 5
        brokers = Brokers(self.image, HERE, None)
        self.news = MetadataNews(brokers, self.others, lambda: self.offset)
        for node_id in (1, 2, 3):
            self.register(node_id)

    def register(self, node_id: int, epoch: int | None = None, *, fenced: bool = False) -> None:
        epoch = 10 * node_id if epoch is None else epoch
        self.image.replay(RegisterBrokerRecord(node_id, uuid.UUID(int=node_id), epoch, (), fenced=fenced))

    def change(self, offset: int) -> None:
        self.offset = offset
        self.news.changed()

    def silence(self, node_id: int) -> asyncio.Event:
        event = self.others.answers[node_id] = asyncio.Event()
        return event

    async def asked(self, count: int) -> list[tuple[int, int]]:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.others.asked) < count:
                await asyncio.sleep(0)
        return sorted(self.others.asked)

    async def waits(self) -> bool:
        """Return whether `settled` waits, for a moment of many turns of the loop."""
        waiting = asyncio.ensure_future(self.news.settled(EVER_S))
        for _ in range(50):
            await asyncio.sleep(0)
        waiting.cancel()
        return not waiting.done()


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_all_live_gateways_are_told_once(scene: Scene) -> None:
    scene.register(4, fenced=True)
    scene.change(6)
    await scene.news.settled(EVER_S)
    assert await scene.asked(2) == [(2, 6), (3, 6)]


async def test_an_administrator_waits_for_the_gateways_that_answer(scene: Scene) -> None:
    answers = scene.silence(3)
    scene.change(6)
    waiting = asyncio.ensure_future(scene.news.settled(EVER_S))
    await scene.asked(2)
    assert await scene.waits()
    answers.set()
    async with asyncio.timeout(PATIENCE_S):
        await waiting


async def test_what_changes_during_the_news_is_told_once_after_it(scene: Scene) -> None:
    scene.register(3, fenced=True)
    answers = scene.silence(2)
    scene.change(6)
    await scene.asked(1)
    for offset in range(7, 50):
        scene.change(offset)
    answers.set()
    await scene.news.settled(EVER_S)
    assert scene.others.asked == [(2, 6), (2, 49)]


async def test_a_silent_gateway_delays_one_caller_only(scene: Scene) -> None:
    answers = scene.silence(2)
    scene.change(6)
    await scene.news.settled(0.01)
    scene.change(7)
    async with asyncio.timeout(PATIENCE_S):
        await scene.news.settled(EVER_S)
    answers.set()  # now it answers, and is waited for again
    assert await scene.asked(4) == [(2, 6), (2, 7), (3, 6), (3, 7)]
    async with asyncio.timeout(PATIENCE_S):
        while await scene.waits():
            pass
    scene.silence(2)
    scene.change(8)
    assert await scene.waits()


@pytest.mark.parametrize("how", ["away", "behind"])
async def test_a_gateway_without_the_change_is_not_asked_again_until_the_next(scene: Scene, how: str) -> None:
    getattr(scene.others, how).add(2)
    scene.change(6)
    await scene.news.settled(EVER_S)
    assert await scene.asked(2) == [(2, 6), (3, 6)]
    scene.change(7)
    assert await scene.asked(4) == [(2, 6), (2, 7), (3, 6), (3, 7)]


async def test_what_changes_during_news_that_fail_is_told_after_them(scene: Scene) -> None:
    """A gateway that starts changes the metadata before it is registered, and is refused as unknown."""
    scene.register(3, fenced=True)
    answers = scene.silence(2)
    scene.others.away.add(2)
    scene.change(6)
    await scene.asked(1)
    scene.change(7)
    answers.set()
    await scene.news.settled(EVER_S)
    assert await scene.asked(2) == [(2, 6), (2, 7)]


async def test_the_next_session_of_a_silent_gateway_is_waited_for(scene: Scene) -> None:
    scene.silence(2)
    scene.change(6)
    await scene.news.settled(0.01)
    scene.register(2, epoch=99)
    scene.change(7)
    assert await scene.waits()


async def test_nobody_waits_for_changes_of_others(scene: Scene) -> None:
    scene.offset = 100
    async with asyncio.timeout(PATIENCE_S):
        await scene.news.settled(EVER_S)
    assert scene.others.asked == []


async def test_an_older_release_is_not_sent_what_it_does_not_know() -> None:
    """The older release does not name the API in ApiVersions; a request of an unknown one would close its
    connection.
    """
    image = MetadataImage()
    async with fake_broker(lambda _: None) as older:
        place = BrokerEndpoint("PLAINTEXT", *older.address)
        image.replay(RegisterBrokerRecord(1, uuid.UUID(int=1), 10, ()))
        image.replay(RegisterBrokerRecord(2, uuid.UUID(int=2), 20, (place,)))
        peers = Peers(load_config(), HERE, lambda _: older.address)
        news = MetadataNews(Brokers(image, HERE, None), peers, lambda: 6)
        try:
            for _ in range(2):
                news.changed()
                async with asyncio.timeout(PATIENCE_S):
                    await news.settled(EVER_S)
        finally:
            await peers.close()
        assert older.connections == 1
        assert older.requests == []
