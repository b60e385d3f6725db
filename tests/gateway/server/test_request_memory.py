from __future__ import annotations

from seqgate.gateway.runtime.loop.request_memory import RequestMemory


class Scene:
    """A memory budget, and the grants that came late."""

    def __init__(self, limit_bytes: int = 100) -> None:
        self.memory = RequestMemory(limit_bytes)
        self.granted: list[str] = []

    def acquire(self, holder: str, size: int) -> bool:
        return self.memory.acquire(holder, size, lambda: self.granted.append(holder))


def test_waits_in_order_until_there_is_room() -> None:
    scene = Scene()
    assert scene.acquire("a", 80)
    assert not scene.acquire("b", 50)
    assert not scene.acquire("c", 10), "a small request must not overtake a larger one"
    scene.memory.give_back("a")
    assert scene.granted == ["b", "c"]
    assert scene.memory.used_bytes == 60


def test_who_began_first_may_always_go_on() -> None:
    scene = Scene()
    assert scene.acquire("a", 60)
    assert scene.acquire("b", 40)
    assert not scene.acquire("b", 40)
    assert scene.acquire("a", 500), "the request that began first must get its room, or none could complete"
    scene.memory.give_back("a")
    assert scene.granted == ["b"]
    assert scene.memory.held_bytes("b") == 80
    assert scene.acquire("b", 500)


def test_who_is_first_now_goes_on_though_there_is_no_room() -> None:
    scene = Scene()
    assert scene.acquire("a", 10)
    assert scene.acquire("b", 60)
    assert not scene.acquire("b", 90)
    assert not scene.acquire("c", 20)
    scene.memory.give_back("a")
    assert scene.granted == ["b"]
    assert scene.memory.used_bytes == 150
    scene.memory.give_back("b")
    assert scene.granted == ["b", "c"]


def test_one_that_went_away_is_not_granted() -> None:
    scene = Scene()
    assert scene.acquire("a", 100)
    assert not scene.acquire("gone", 100)
    assert not scene.acquire("next", 30)
    scene.memory.give_back("gone")
    scene.memory.give_back("a")
    assert scene.granted == ["next"]
    assert scene.memory.used_bytes == 30


def test_when_the_first_in_line_goes_away_those_behind_it_move_up() -> None:
    scene = Scene()
    assert scene.acquire("a", 60)
    assert not scene.acquire("large", 90)
    assert not scene.acquire("small", 30)
    assert scene.memory.is_short
    assert scene.memory.is_waiting("small")
    scene.memory.give_back("large")
    assert scene.granted == ["small"]
    assert not scene.memory.is_short


def test_without_a_limit_everything_is_granted() -> None:
    scene = Scene(-1)
    assert all(scene.acquire(str(number), 1 << 40) for number in range(3))


def test_what_is_taken_apart_from_connections_counts_as_well() -> None:
    scene = Scene()
    assert scene.memory.try_acquire(90)
    assert not scene.memory.try_acquire(20)
    assert scene.acquire("first", 50), "the request that began first must always get its room"
    assert not scene.acquire("b", 10)
    scene.memory.release(90)
    assert scene.granted == ["b"]


def test_what_is_kept_finds_room_or_is_the_only_one() -> None:
    scene = Scene()
    assert scene.acquire("whole", 90)
    assert scene.memory.try_keep("a", 80), "a request must be kept when no other one is"
    assert not scene.memory.try_keep("b", 1)
    scene.memory.give_back("whole")
    assert scene.memory.try_keep("b", 20)
    assert not scene.memory.try_keep("b", 1)
    scene.memory.release_kept("a", 80)
    scene.memory.release_kept("b", 20)
    assert scene.memory.used_bytes == 0


def test_a_client_leaves_as_much_free_as_it_keeps() -> None:
    memory = RequestMemory(100)
    kept = {client: sum(memory.try_keep(client, 1) for _ in range(100)) for client in "abc"}
    assert kept == {"a": 50, "b": 25, "c": 12}
    memory.release_kept("a", 50)
    assert sum(memory.try_keep("c", 1) for _ in range(100)) == 25, "what others give back is shared, too"
    assert memory.try_keep("d", 38), "a client's first request needs only room"
    assert sum(RequestMemory(-1).try_keep("a", 1 << 40) for _ in range(3)) == 3
