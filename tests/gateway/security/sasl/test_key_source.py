"""The times at which the keys of tokens are read: caching, rotation, and an endpoint that does not answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from seqgate.gateway.security.sasl.oauthbearer import (
    UNKNOWN_KEY_INTERVAL_S,
    KeySet,
    KeySource,
    KeysUnusable,
    RefreshTimes,
    VerificationKey,
)

REFRESH = RefreshTimes(refresh_s=3600, backoff_s=0.1, backoff_max_s=0.35)


def keys(*names: str) -> KeySet:
    return KeySet(tuple(VerificationKey(name, frozenset({"ES256"}), name) for name in names))


class Timers:
    """An event loop whose timers the test fires; everything else is the real loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.now_s = 1000.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.cancelled = 0

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timers:
        self.timers.append((delay_s, call))
        return self

    def cancel(self) -> None:
        self.cancelled += 1

    def create_future(self) -> asyncio.Future[None]:
        return self._loop.create_future()

    def call_soon_threadsafe(self, call: Callable[..., None], *arguments: object) -> None:
        self._loop.call_soon_threadsafe(call, *arguments)


class Endpoint:
    """An endpoint that answers with the keys that the test sets, or fails."""

    def __init__(self) -> None:
        self.answer: KeySet | Exception = keys("first")
        self.reads = 0
        self.held = threading.Event()
        self.held.set()

    def read(self) -> KeySet:
        self.reads += 1
        assert self.held.wait(30)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Scene:
    def __init__(self) -> None:
        self.timers = Timers(asyncio.get_running_loop())
        self.endpoint = Endpoint()
        self.source = KeySource(self.timers, self.endpoint.read, "the-endpoint", REFRESH)  # type: ignore[arg-type]

    async def settled(self) -> None:
        """Wait until the read that has begun is over."""
        reading = self.source._reading
        if reading is not None:
            await asyncio.wait_for(asyncio.shield(reading), 60)

    async def knows(self, name: str) -> bool:
        return await self.source.find(name, "ES256") is not None

    def fire(self) -> float:
        """Fire the newest timer; return its delay."""
        delay_s, call = self.timers.timers[-1]
        self.timers.now_s += delay_s
        call()
        return delay_s


async def test_the_keys_are_read_once_for_many_logins() -> None:
    scene = Scene()
    scene.source.refresh()
    assert all([await scene.knows("first") for _ in range(100)])
    assert scene.endpoint.reads == 1


async def test_logins_before_the_first_answer_wait_for_it() -> None:
    scene = Scene()
    scene.endpoint.held.clear()
    scene.source.refresh()
    logins = [asyncio.ensure_future(scene.knows("first")) for _ in range(5)]
    await asyncio.sleep(0)
    assert not any(login.done() for login in logins)
    scene.endpoint.held.set()
    assert all(await asyncio.gather(*logins))
    assert scene.endpoint.reads == 1


async def test_the_keys_are_read_again_after_the_refresh_time() -> None:
    scene = Scene()
    scene.source.refresh()
    await scene.settled()
    scene.endpoint.answer = keys("second")
    assert scene.fire() == REFRESH.refresh_s
    await scene.settled()
    assert await scene.knows("second")
    assert not await scene.knows("first")


async def test_an_unknown_key_makes_the_source_read_again_but_not_often() -> None:
    scene = Scene()
    scene.source.refresh()
    assert await scene.knows("first")
    scene.endpoint.answer = keys("first", "second")
    assert not await scene.knows("second")
    assert scene.endpoint.reads == 1
    scene.timers.now_s += UNKNOWN_KEY_INTERVAL_S
    assert await scene.knows("second")
    for number in range(100):
        assert not await scene.knows(f"made-up-{number}")
    assert scene.endpoint.reads == 2


async def test_an_endpoint_that_is_away_drops_no_key(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.source.refresh()
    await scene.settled()
    scene.endpoint.answer = KeysUnusable("connection refused")
    delays = [scene.fire()]
    for _ in range(4):
        await scene.settled()
        assert await scene.knows("first")
        delays.append(scene.fire())
    assert delays == [3600, 0.1, 0.2, 0.35, 0.35]
    await scene.settled()
    assert [record.message for record in caplog.records] == [
        (
            "can't read the keys of tokens from the-endpoint: connection refused; the 1 keys known before stay "
            "valid"
        )
    ]
    scene.endpoint.answer = keys("first")
    scene.fire()
    await scene.settled()
    assert scene.fire() == REFRESH.refresh_s
    await scene.settled()


async def test_without_keys_the_reason_says_so() -> None:
    scene = Scene()
    scene.endpoint.answer = ValueError("a mistake")
    scene.source.refresh()
    assert not await scene.knows("first")
    assert "could not be read yet" in scene.source.why_not_found("first")
    scene.endpoint.answer = keys("first")
    scene.fire()
    assert await scene.knows("first")
    assert "is unknown" in scene.source.why_not_found("x")
    assert "the-endpoint" not in scene.source.why_not_found("x")
    assert "names no key" in scene.source.why_not_found(None)


async def test_a_login_does_not_wait_for_a_slow_endpoint_when_it_has_the_key() -> None:
    scene = Scene()
    scene.source.refresh()
    await scene.settled()
    scene.endpoint.held.clear()
    scene.fire()
    assert await scene.knows("first")
    scene.endpoint.held.set()
    await scene.settled()


async def test_a_system_without_threads_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()

    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        scene.source.refresh()
    assert not await scene.knows("first")
    scene.fire()
    assert await scene.knows("first")
