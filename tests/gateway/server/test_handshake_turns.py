"""Handshakes wait for the next turn of the event loop when a turn has spent its slice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from seqgate.gateway.server.handshake_turns import HandshakeTurns

SLICE_S = 0.005


class Scene:
    """A loop whose turns the test begins, and a clock that only work moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.scheduled: list[Callable[[], None]] = []
        self.done: list[str] = []
        self.turns = HandshakeTurns(cast("Any", self), SLICE_S, lambda: self.now_s)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.scheduled.append(callback)

    def work(self, name: str, seconds: float = 0.002) -> None:
        with self.turns.measured():
            self.now_s += seconds
            self.done.append(name)

    def arrive(self, name: str, seconds: float = 0.002, host: str = "192.0.2.1") -> None:
        if self.turns.has_time():
            self.work(name, seconds)
        else:
            self.turns.wait(host, partial(self.work, name, seconds))

    def turn(self) -> list[str]:
        """Let the loop turn once; return what was done in the turn."""
        before = len(self.done)
        scheduled, self.scheduled = self.scheduled, []
        for callback in scheduled:
            callback()
        return self.done[before:]


def test_a_turn_ends_after_its_slice_and_the_next_ones_go_on_in_order() -> None:
    scene = Scene()
    for name in "abcdefgh":
        scene.arrive(name)
    assert scene.done == ["a", "b", "c"]
    assert scene.turn() == ["d", "e", "f"]
    assert scene.turn() == ["g", "h"]
    assert scene.turn() == []
    assert scene.scheduled == []


def test_who_comes_later_does_not_overtake_those_who_wait() -> None:
    scene = Scene()
    for name in "abcdefg":
        scene.arrive(name)
    assert scene.turn() == ["d", "e", "f"]
    scene.arrive("late")
    assert scene.turn() == ["g", "late"]


def test_a_crowd_at_one_address_does_not_go_before_others() -> None:
    scene = Scene()
    for name in "abcdefghi":
        scene.arrive(name)
    scene.arrive("other", host="192.0.2.2")
    scene.arrive("other's second", host="192.0.2.2")
    assert scene.turn() == ["d", "other", "e"]
    assert scene.turn() == ["other's second", "f", "g"]
    assert scene.turn() == ["h", "i"]
    assert len(scene.turns) == 0


def test_a_quiet_listener_begins_each_handshake_at_once() -> None:
    scene = Scene()
    for _ in range(10):
        scene.arrive("a")
        assert len(scene.turns) == 0
        scene.turn()
    assert scene.done == ["a"] * 10


def test_one_long_handshake_does_not_stop_the_others_for_ever() -> None:
    scene = Scene()
    scene.arrive("long", 1.0)
    scene.arrive("short")
    assert scene.done == ["long"]
    assert scene.turn() == ["short"]


def test_work_that_has_become_void_takes_no_time() -> None:
    scene = Scene()
    scene.arrive("long", 1.0)
    for _ in range(3):
        scene.turns.wait("192.0.2.1", lambda: None)
    scene.arrive("last")
    assert scene.turn() == ["last"]


def test_a_failure_does_not_stop_those_who_wait() -> None:
    scene = Scene()
    scene.arrive("long", 1.0)
    scene.turns.wait("192.0.2.1", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    scene.arrive("last")
    assert scene.turn() == ["last"]
