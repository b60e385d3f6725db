"""Each checker of named applications judges hand-written histories."""

from __future__ import annotations

from tests.simulation.events_of_names import (
    DeduplicationSwitched,
    LineAcknowledged,
    LineName,
    LineSent,
    NameFenced,
    NameTold,
)
from tests.simulation.history import Fetched, TopicPartition, TransactionEnded, TransactionEnding
from tests.simulation.story import P0, Story

Row = LineName | None


def line(sequence: int, life: int = 1, transaction: int = 0) -> LineName:
    return LineName("app", life, transaction, sequence)


class NamedStory(Story):
    """A history of a topic that deduplicates."""

    def __init__(self, **about: object) -> None:
        super().__init__(named=frozenset({P0.topic}), **about)

    def left(self, *lines: LineName, epoch: int = -1, key: bytes = b"") -> None:
        for name in lines:
            self.add(LineSent(self.tick(), name, P0, epoch, key))

    def stored(self, name: LineName, offset: int, epoch: int = -1, key: bytes = b"") -> None:
        """Add a line that is sent and acknowledged; offset −1 acknowledges it as a duplicate."""
        self.left(name, epoch=epoch, key=key)
        self.add(LineAcknowledged(self.tick(), name, P0, offset))

    def told(self, sequence: int, *, asked_at_ms: int | None = None) -> None:
        asked_at_ms = self.tick() if asked_at_ms is None else asked_at_ms
        self.add(NameTold(self.tick(), "app", ((P0, sequence),), asked_at_ms))

    def read(
        self, rows: list[Row], *, begin: int = 0, committed: bool = True, at: TopicPartition = P0
    ) -> None:
        end = begin + len(rows)
        records = tuple((offset, row.encode()) for offset, row in enumerate(rows, begin) if row)
        asked_at_ms = self.tick()
        self.add(
            Fetched(self.tick(), "c", at, committed, begin, end, records, end, end, begin, (), asked_at_ms)
        )

    def last(
        self, rows: list[Row], committed: list[Row] | None = None, *, begin: int = 0, told: int | None = None
    ) -> None:
        """Add the last reading, and the sequence id that the gateway then reports for the name."""
        self.final([], begin=begin)
        del self.history.events[-2:]
        if told is not None:
            self.told(told)
        self.read(rows, begin=begin, committed=False)
        self.read(rows if committed is None else committed, begin=begin)

    def ended(self, transaction: int, *, commit: bool, life: int = 1) -> None:
        who = f"app.{life}", 1, transaction
        self.add(TransactionEnding(self.tick(), *who, commit))
        self.add(TransactionEnded(self.tick(), *who, commit))


def test_lines_that_are_sent_again_and_stored_once_are_no_breach() -> None:
    story = NamedStory()
    story.stored(line(0), 0)
    story.stored(line(3), 1)
    story.told(3)
    story.stored(line(0, life=2), -1)
    story.stored(line(3, life=2), 2)  # an idempotent producer's batch without records
    story.stored(line(7, life=2), 3)
    story.last([line(0), line(3), None, line(7, life=2)], told=7)

    assert story.found() == set()


def test_an_acknowledged_line_is_missing() -> None:
    story = NamedStory()
    story.stored(line(0), 0)
    story.stored(line(1), 1)
    story.last([line(0)])

    assert story.found() == {"named_lost"}


def test_a_line_that_was_answered_as_a_duplicate_is_missing() -> None:
    story = NamedStory()
    story.stored(line(5), -1)
    story.last([])

    assert story.found() == {"named_lost"}


def test_a_line_below_a_stored_one_is_missing() -> None:
    story = NamedStory()
    story.left(line(0))
    story.stored(line(1), 0)
    story.last([line(1)])

    assert story.found() == {"named_lost"}


def test_deleted_lines_are_not_missing_but_those_after_one_that_is_left_are() -> None:
    story = NamedStory(deleted_before={P0: 1})
    story.stored(line(0), 0)
    story.stored(line(1), 1)
    story.stored(line(2), 2)
    story.last([line(1), line(2)], begin=1)
    assert story.found() == set()

    story.history.events = [event for event in story.history.events if not isinstance(event, Fetched)]
    story.read([line(1), None], begin=1, committed=False)
    story.read([line(1), None], begin=1)
    assert story.found() == {"named_lost"}


def test_a_line_gives_way_to_a_later_one_of_its_key_only() -> None:
    story = NamedStory(compacted=frozenset({P0.topic}))
    story.stored(line(0), 0, key=b"a")
    story.stored(line(1), 1, key=b"b")
    story.stored(line(2), 2, key=b"a")
    story.last([None, line(1), line(2)], told=2)
    assert story.found() == set()

    story.history.events = story.history.events[:-2]
    story.read([None, None, line(2)], committed=False)
    story.read([None, None, line(2)])
    assert story.found() == {"named_lost"}


def test_a_line_is_stored_twice() -> None:
    story = NamedStory()
    story.stored(line(0), 0)
    story.stored(line(0, life=2), 1)
    story.last([line(0), line(0, life=2)])

    assert story.found() == {"named_doubled"}


def test_a_line_that_was_deleted_comes_again() -> None:
    story = NamedStory(deleted_before={P0: 1})
    story.stored(line(0), 0)
    story.read([line(0)])
    story.stored(line(0, life=2), 1)
    story.last([line(0, life=2)], begin=1)

    assert story.found() == {"named_doubled"}


def switched(*, off_before_the_second: bool) -> set[str]:
    story = NamedStory(switched=frozenset({P0.topic}))
    story.stored(line(0), 0)
    story.add(DeduplicationSwitched(story.tick(), P0.topic, on=False))
    if off_before_the_second:
        story.left(line(0, life=2))
    story.add(DeduplicationSwitched(story.tick(), P0.topic, on=True))
    story.stored(line(0, life=2), 1)
    story.last([line(0), line(0, life=2)])
    return story.found()


def test_a_line_may_be_stored_twice_only_while_deduplication_is_off() -> None:
    assert switched(off_before_the_second=True) == set()
    assert switched(off_before_the_second=False) == {"named_doubled"}


def test_lines_are_out_of_order() -> None:
    story = NamedStory()
    story.stored(line(0), 1)
    story.stored(line(1), 0)
    story.last([line(1), line(0)])

    assert story.found() == {"named_order"}


def test_a_line_is_elsewhere_than_it_was_acknowledged() -> None:
    story = NamedStory()
    story.stored(line(0), 4)
    story.last([line(0), None, None, None, None])

    assert story.found() == {"named_places"}


def test_the_lines_of_an_aborted_transaction_do_not_count() -> None:
    story = NamedStory()
    story.stored(line(0, transaction=1), 0)
    story.ended(1, commit=False)
    story.told(-1)
    story.stored(line(0, transaction=2), 2)
    story.ended(2, commit=True)
    rows: list[Row] = [line(0, transaction=1), None, line(0, transaction=2), None]
    story.last(rows, [None, *rows[1:]], told=0)
    assert story.found() == set()

    story.read(rows)
    assert "named_aborted" in story.found()


def test_a_committed_line_is_lost_because_an_aborted_one_counted() -> None:
    story = NamedStory()
    story.stored(line(0, transaction=1), 0)
    story.ended(1, commit=False)
    story.stored(line(0, life=2), -1)
    story.last([line(0, transaction=1), None], [None, None])

    assert story.found() == {"named_lost"}


def test_more_is_told_than_is_stored() -> None:
    story = NamedStory()
    story.stored(line(0), 0)
    story.left(line(1))
    story.told(1)
    story.last([line(0)])

    assert story.found() == {"names_told"}


def test_less_is_told_than_was_acknowledged_or_told_before_it_was_asked_for() -> None:
    story = NamedStory()
    story.stored(line(0), 0)
    asked_at_ms = story.tick()
    story.stored(line(1), 1)
    story.told(0, asked_at_ms=asked_at_ms)
    story.last([line(0), line(1)], told=1)
    assert story.found() == set()

    story.history.events.insert(-3, NameTold(story.now_ms, "app", ((P0, 0),), story.now_ms))
    assert story.found() == {"names_told"}


def test_a_reported_sequence_id_may_lag_while_later_records_wait_for_their_flush() -> None:
    story = NamedStory()
    story.stored(line(0), 0)
    story.left(line(1))
    story.told(-1)
    story.last([line(0), line(1)], told=1)
    assert story.found() == set()

    story = NamedStory()
    story.stored(line(0), 0)
    story.told(0)
    story.left(line(1))
    story.told(-1)
    story.last([line(0), line(1)], told=1)
    assert story.found() == {"names_told"}


def test_what_is_told_at_the_end_is_behind() -> None:
    story = NamedStory()
    story.left(line(0), line(1))
    story.last([line(0), line(1)], told=0)

    assert story.found() == {"names_told"}


def test_the_newest_epoch_is_fenced() -> None:
    story = NamedStory()
    story.left(line(0), epoch=1)
    story.left(line(0, life=2), epoch=2)
    story.add(NameFenced(story.tick(), "app", 1, 1, P0))
    story.last([])
    assert story.found() == set()

    story.add(NameFenced(story.tick(), "app", 2, 2, P0))
    assert story.found() == {"names_fenced"}


def test_a_fenced_life_stores_a_line() -> None:
    story = NamedStory()
    story.stored(line(0, life=2), 0, epoch=2)
    story.stored(line(1), 1, epoch=1)
    story.last([line(0, life=2), line(1)])

    assert story.found() == {"names_fenced"}


def test_a_life_that_duplicates_of_a_newer_one_have_fenced_stores_a_line() -> None:
    story = NamedStory()
    story.stored(line(0), 0, epoch=1)
    story.stored(line(0, life=2), -1, epoch=2)
    story.last([line(0)])
    assert story.found() == set()

    story = NamedStory()
    story.stored(line(0), 0, epoch=1)
    story.stored(line(0, life=2), -1, epoch=2)
    story.stored(line(1), 1, epoch=1)
    story.last([line(0), line(1)])
    assert story.found() == {"names_fenced"}


def test_a_record_that_looks_like_a_line_and_was_never_sent() -> None:
    story = NamedStory()
    story.last([line(0)])

    assert story.found() == {"misplaced"}
