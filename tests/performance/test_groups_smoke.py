"""The benchmark of consumer groups runs, and its members wait for each other as real ones do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.performance import groups
from tests.performance.brokers import SeqgateBroker
from tests.performance.group_members import Group, Member
from tests.performance.loads import PAGE_CACHE, create_topic

WAIT_S = 20.0
"""Less than the session timeout of the members."""


def test_a_row_for_each_number_of_partitions_and_durability(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--groups", "2", "--members", "5", "--offsets-partitions", "1", "3"]
    assert groups.main([*sizes, "--seconds", "0.1", "--rounds", "1", "--only-seqgate"]) == 0
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[2:]
    ]
    assert [row[:3] for row in rows] == [
        [topic, durability, "Seqgate"]
        for topic in ("1 partition", "3 partitions")
        for durability in ("page cache", "flush")
    ]
    assert all(float(row[5].replace(",", "")) > 0 for row in rows)


def test_a_member_stays_until_late_ones_have_joined(tmp_path: Path) -> None:
    async def join_one_after_the_other(broker: SeqgateBroker) -> None:
        host, _, port = broker.bootstrap.rpartition(":")
        group = Group("late", 3)
        members = [Member(host, int(port), group, groups.TOPIC) for _ in range(group.size)]
        await groups.look_up(host, int(port), [group])
        for member in members:
            await member.connect()
        early, *late = members
        await early.join()
        await asyncio.wait_for(
            asyncio.gather(early.await_others(), *(member.settle() for member in late)), WAIT_S
        )
        assert {member.generation_id for member in members} == {group.full_generation}
        for member in members:
            await member.leave()

    with SeqgateBroker(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as broker:
        create_topic(broker, groups.TOPIC, partitions=1, flush_messages=PAGE_CACHE)
        asyncio.run(join_one_after_the_other(broker))
