"""Operations one at a time over a log that others write, too: each is judged on the state right before it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from gateway.metadata.decision import Decision
from gateway.runtime.operations.operations import DurableFirst


class CountingJournal:
    """A log of numbers, into which another writer may put its own first."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.state: list[int] = []
        self.others: list[int] = []
        """What another writer writes, one before each of the next commits."""

    async def catch_up(self) -> None:
        await asyncio.sleep(0)
        self.state = list(self.log)

    async def commit(self, records: Sequence[int]) -> bool:
        await asyncio.sleep(0)
        if self.others:
            self.log.append(self.others.pop(0))
        is_first = len(self.state) == len(self.log)
        if is_first:
            self.log += records
        self.state = list(self.log)
        return is_first


class TestJudging:
    async def test_an_operation_is_judged_again_while_others_are_first(self) -> None:
        journal, seen = CountingJournal(), list[list[int]]()
        journal.others = [10, 20]

        def judge() -> Decision[int]:
            seen.append(list(journal.state))
            return Decision((len(journal.state),), len(journal.state))

        assert await DurableFirst(journal).run(judge) == 2
        assert seen == [[], [10], [10, 20]]
        assert journal.log == [10, 20, 2]

    async def test_an_operation_without_records_sees_what_others_wrote(self) -> None:
        journal = CountingJournal()
        journal.log = [10]
        assert await DurableFirst(journal).run(lambda: Decision((), len(journal.state))) == 1

    async def test_what_judging_raises_ends_only_this_operation(self) -> None:
        journal = CountingJournal()
        operations = DurableFirst(journal)

        def refuse() -> Decision[None]:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await operations.run(refuse)
        assert await operations.run(lambda: Decision((1,), "done")) == "done"
        assert not operations.is_running

    async def test_operations_wait_for_each_other(self) -> None:
        journal = CountingJournal()
        journal.others = [7, 7, 7]
        operations = DurableFirst(journal)

        def append() -> Decision[int]:
            return Decision((len(journal.state),), len(journal.state))

        places = await asyncio.gather(*(operations.run(append) for _ in range(20)))
        assert sorted(places) == list(places)
        assert [number for place, number in enumerate(journal.log) if number != place] == [7, 7, 7]
