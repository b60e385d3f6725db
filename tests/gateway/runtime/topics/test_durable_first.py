"""Operations one at a time over a log that others write, too: each is judged on the state right before it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest

from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.runtime.topics.metadata_log import FoldedImage, MetadataLog


class CountingJournal:
    """A log of numbers, into which another writer may put its own first."""

    def __init__(self) -> None:
        self.folded = FoldedImage(None)
        self.log: list[int] = []
        self.state: list[int] = []
        self.others: list[int] = []
        """What another writer writes, one before each of the next commits."""
        self.looks = 0
        self.fails = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def catch_up(self) -> None:
        self.looks += 1
        await asyncio.sleep(0)
        await self.answers.wait()
        if self.fails:
            raise ConnectionError
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

        def judge(_: MetadataImage) -> Decision[int]:
            seen.append(list(journal.state))
            return Decision((len(journal.state),), len(journal.state))

        assert await MetadataLog(journal).commit(judge) == 2
        assert seen == [[], [10], [10, 20]]
        assert journal.log == [10, 20, 2]

    async def test_an_operation_without_records_sees_what_others_wrote(self) -> None:
        journal = CountingJournal()
        journal.log = [10]
        assert await MetadataLog(journal).commit(lambda _: Decision((), len(journal.state))) == 1

    async def test_what_judging_raises_ends_only_this_operation(self) -> None:
        journal = CountingJournal()
        operations = MetadataLog(journal)

        def refuse(_: MetadataImage) -> Decision[None]:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await operations.commit(refuse)
        assert await operations.commit(lambda _: Decision((1,), "done")) == "done"
        assert not operations.is_changing

    async def test_nothing_complains_of_a_failure_whose_caller_was_cancelled(self) -> None:
        journal, complaints = CountingJournal(), list[object]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        operations = MetadataLog(journal)
        journal.answers.clear()
        caller = asyncio.ensure_future(operations.commit(lambda _: Decision((1,), None)))
        await asyncio.sleep(0)
        caller.cancel()
        journal.fails = True
        journal.answers.set()
        await asyncio.wait([caller])
        await operations.close()
        gc.collect()
        assert complaints == []

    async def test_operations_wait_for_each_other(self) -> None:
        journal = CountingJournal()
        journal.others = [7, 7, 7]
        operations = MetadataLog(journal)

        def append(_: MetadataImage) -> Decision[int]:
            return Decision((len(journal.state),), len(journal.state))

        places = await asyncio.gather(*(operations.commit(append) for _ in range(20)))
        assert sorted(places) == list(places)
        assert [number for place, number in enumerate(journal.log) if number != place] == [7, 7, 7]


class TestLooking:
    """Where the log is slow, clients that ask again must not queue up more looks than are ever made."""

    async def test_one_look_serves_all_that_waited_when_it_began(self) -> None:
        journal = CountingJournal()
        operations = MetadataLog(journal)
        journal.answers.clear()
        first = operations._start(lambda _: Decision((), len(journal.state)))
        await asyncio.sleep(0)
        late = [operations._start(lambda _: Decision((), len(journal.state))) for _ in range(100)]
        await asyncio.sleep(0)
        assert journal.looks == 1
        journal.log = [10]
        journal.answers.set()
        assert await asyncio.gather(*late) == [1] * 100
        await first
        assert journal.looks == 2

    async def test_a_commit_is_a_look(self) -> None:
        journal = CountingJournal()
        operations = MetadataLog(journal)
        runs = [operations.commit(lambda _: Decision((1,), len(journal.state))) for _ in range(3)]
        assert await asyncio.gather(*runs) == [0, 1, 2]
        assert journal.looks == 1

    async def test_a_look_that_began_before_the_operation_is_too_old(self) -> None:
        journal = CountingJournal()
        operations = MetadataLog(journal)
        await operations.commit(lambda _: Decision((), None))
        journal.log = [10]
        assert await operations.commit(lambda _: Decision((), len(journal.state))) == 1

    async def test_a_look_that_failed_serves_nobody(self) -> None:
        journal = CountingJournal()
        operations = MetadataLog(journal)
        journal.fails = True
        both = [operations._start(lambda _: Decision((), len(journal.state))) for _ in range(2)]
        found = await asyncio.gather(*both, return_exceptions=True)
        assert [type(each) for each in found] == [ConnectionError, ConnectionError]
        assert journal.looks == 2

    async def test_looks_without_an_operation_are_shared(self) -> None:
        journal = CountingJournal()
        operations = MetadataLog(journal)
        journal.answers.clear()
        first = asyncio.ensure_future(operations.catch_up())
        while not journal.looks:
            await asyncio.sleep(0)
        late = [asyncio.ensure_future(operations.catch_up()) for _ in range(100)]
        await asyncio.sleep(0)
        assert len(operations._tasks) == 2
        journal.log = [10]
        late[0].cancel()
        journal.answers.set()
        await asyncio.gather(first, *late[1:])
        assert (journal.looks, journal.state) == (2, [10])
        await operations.catch_up()
        assert journal.looks == 3


class TestFinishing:
    async def test_an_operation_that_has_just_ended_does_not_hold_it_up(self) -> None:
        """Where this fails, it never ends: before its callbacks have run, an ended task is still among the
        running ones.
        """
        operations = MetadataLog(CountingJournal())
        ended = operations._start(lambda _: Decision((), None))
        while not ended.done():
            await asyncio.sleep(0)
        assert ended in operations._tasks
        await operations.close()
        assert operations._tasks == set()
