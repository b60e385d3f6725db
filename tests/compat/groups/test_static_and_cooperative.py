"""Static members that return under their instance id (KIP-345), and rebalances that move only some partitions
(KIP-429)."""

from __future__ import annotations

import pytest

from tests.compat.groups.members import CONFLUENT, Members, await_that, once_each

LONG_SESSION_MS = 30_000


@pytest.mark.parametrize("killed", [False, True])
def test_a_static_member_comes_back_to_its_partitions(members: Members, killed: bool) -> None:
    first = members.start(CONFLUENT, "first", instance_id="one", session_timeout_ms=LONG_SESSION_MS)
    second = members.start(CONFLUENT, "second", instance_id="two", session_timeout_ms=LONG_SESSION_MS)
    held = members.await_shared(first, second)
    members.deliver(5)
    await_that(lambda: members.committed_offsets() == members.end_offsets(), "all is committed")
    changes_of_second = second.changes
    if killed:
        first.kill()
    else:
        first.leave()
    members.produce(5)
    again = members.start(CONFLUENT, "first", instance_id="one", session_timeout_ms=LONG_SESSION_MS)
    members.await_all_delivered()
    assert once_each(members.sent, members.delivered)
    assert again.changes == [("assigned", sorted(held["first"]))]
    assert second.changes == changes_of_second, "nobody else rebalances"
    assert members.assignments() == held


def test_a_second_process_with_the_same_instance_id_fences_the_first(members: Members) -> None:
    first = members.start(CONFLUENT, "first", instance_id="one", session_timeout_ms=LONG_SESSION_MS)
    members.await_shared(first)
    second = members.start(CONFLUENT, "second", instance_id="one", session_timeout_ms=LONG_SESSION_MS)
    await_that(lambda: first.told("error"), "the first is told that it is fenced")
    assert "fenced" in first.told("error")[0].lower()
    members.produce(5)
    await_that(lambda: len(second.records) == len(members.sent), "the second has everything")


def test_a_cooperative_rebalance_takes_only_what_moves(members: Members) -> None:
    first = members.start(CONFLUENT, "first", assignor="cooperative-sticky")
    assert members.await_shared(first) == {"first": {0, 1, 2, 3}}
    members.deliver(10)
    second = members.start(CONFLUENT, "second", assignor="cooperative-sticky")
    held = members.await_shared(first, second)
    members.deliver(10)
    assert {len(part) for part in held.values()} == {2}
    assert first.told("revoked") == [sorted(held["second"])]
    assert [part for part in second.told("assigned") if part] == [sorted(held["second"])]
    second.leave()
    members.await_shared(first)
    members.deliver(10)
    assert first.told("revoked") == [sorted(held["second"])]
    assert once_each(members.sent, members.delivered)
