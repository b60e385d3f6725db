"""Freed memory goes back to the operating system at the right time."""

from __future__ import annotations

from gateway.runtime.upkeep.freed_memory import GIVE_BACK_AFTER, FreedMemory


def test_it_waits_for_the_end_of_many_deletions() -> None:
    freed = FreedMemory()
    assert not freed.give_back_if_due(GIVE_BACK_AFTER, 0), "more may be deleted"
    assert not freed.give_back_if_due(GIVE_BACK_AFTER, 7), "their files are not"
    assert freed.give_back_if_due(GIVE_BACK_AFTER, 0)
    assert not freed.give_back_if_due(GIVE_BACK_AFTER, 0), "once is enough"


def test_a_few_deletions_are_not_worth_it_until_they_are_many() -> None:
    freed = FreedMemory()
    given_back = [freed.give_back_if_due(closed, 0) for closed in (100, 100, 300, 300, 500, 500, 700, 700)]
    assert given_back == [False] * 5 + [True] + [False] * 2
