from __future__ import annotations

from gateway.server.request_memory import RequestMemory


def test_waits_in_order_until_there_is_room() -> None:
    memory = RequestMemory(100)
    granted: list[str] = []
    assert memory.acquire(80, lambda: granted.append("a"))
    assert not memory.acquire(50, lambda: granted.append("b"))
    assert not memory.acquire(10, lambda: granted.append("c")), "a small one does not overtake"
    memory.release(80)
    assert granted == ["b", "c"]
    assert memory.used_bytes == 60


def test_a_request_over_the_whole_budget_is_granted_alone() -> None:
    memory = RequestMemory(100)
    assert memory.acquire(500, lambda: None)
    assert not memory.acquire(1, lambda: None)


def test_one_that_went_away_is_not_granted() -> None:
    memory = RequestMemory(100)
    granted: list[str] = []
    assert memory.acquire(100, lambda: None)

    def gone() -> None:
        granted.append("gone")

    assert not memory.acquire(100, gone)
    assert not memory.acquire(30, lambda: granted.append("next"))
    memory.forget(gone)
    memory.release(100)
    assert granted == ["next"]


def test_without_a_limit_everything_is_granted() -> None:
    memory = RequestMemory(-1)
    assert all(memory.acquire(1 << 40, lambda: None) for _ in range(3))


def test_when_the_first_in_line_goes_away_those_behind_it_move_up() -> None:
    memory = RequestMemory(100)
    granted: list[str] = []
    assert memory.acquire(60, lambda: None)

    def large() -> None:
        granted.append("large")

    assert not memory.acquire(90, large)
    assert not memory.acquire(30, lambda: granted.append("small"))
    assert memory.is_short
    memory.forget(large)
    assert granted == ["small"]
    assert not memory.is_short
