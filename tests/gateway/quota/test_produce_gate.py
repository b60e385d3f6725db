"""A gate refuses batches before they are written, between two measurements of a backlog."""

from __future__ import annotations

from seqgate.gateway.quota.backlog import BacklogRules, GroupReader, Limit, Policy, ProduceGate, Usage

READER = GroupReader("slow", False, 0)
BY_SIZE = BacklogRules(quota_bytes=100, policy=Policy.REFUSE)


def gate(usage: Usage, rules: BacklogRules = BY_SIZE) -> ProduceGate:
    made = ProduceGate()
    made.update(usage, rules)
    return made


def test_a_quota_by_size_is_counted_down_between_measurements() -> None:
    found = gate(Usage(READER, 60, None, None))
    assert not found.is_closed
    found.count_append(40)
    assert not found.is_closed, "100 bytes are the quota, not more than it"
    found.count_append(1)
    assert found.is_closed
    reason = found.refuse()
    assert "slow" in reason
    assert "backlog.quota.bytes is 100" in reason
    assert found.refused_batches == 1


def test_a_quota_by_time_closes_whatever_the_size() -> None:
    rules = BacklogRules(quota_bytes=100, quota_ms=5_000)
    found = gate(Usage(READER, 1, 6_000, Limit.QUOTA_MS), rules)
    assert found.is_closed
    assert found.holds
    assert "backlog.quota.ms is 5000" in found.refuse()


def test_without_readers_every_batch_is_taken() -> None:
    found = gate(Usage(None, 0, None, None))
    found.count_append(2**40)
    assert not found.is_closed
