from __future__ import annotations

from seqgate.gateway.coordinator.group.member_bytes import MemberBytes


def test_members_are_admitted_up_to_the_limit_and_again_when_others_left() -> None:
    held = [0]
    budget = MemberBytes(100, lambda: held[0])
    assert budget.admit(60, 0)
    assert budget.admit(40, 0)
    held[0] = 100
    assert not budget.admit(1, 10)
    held[0] = 30
    assert not budget.admit(1, 500), (
        "the members were counted a moment ago, so they must not be counted again"
    )
    assert budget.admit(70, 2_000)
    held[0] = 100
    assert not budget.admit(1, 2_001)


def test_not_every_refusal_recounts() -> None:
    counted = []

    def count() -> int:
        counted.append(1)
        return 100

    budget = MemberBytes(100, count)
    assert budget.admit(100, 0)
    for now_ms in range(500):
        assert not budget.admit(10, now_ms)
    assert len(counted) == 1


def test_members_that_join_again_count_once() -> None:
    budget = MemberBytes(100, lambda: 10)
    assert all(budget.admit(10, 0) for _ in range(1_000))
