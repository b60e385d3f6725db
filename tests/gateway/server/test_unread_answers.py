from __future__ import annotations

from seqgate.gateway.server.connection import UnreadAnswers


class FakeReader:
    def __init__(self) -> None:
        self.dropped_for = ""

    def abort(self, reason: str) -> None:
        self.dropped_for = reason


def test_the_one_with_the_most_unread_is_dropped_until_the_rest_fits() -> None:
    unread = UnreadAnswers(100)
    small, large, newest = FakeReader(), FakeReader(), FakeReader()
    unread.note(small, 30)
    unread.note(large, 60)
    assert (unread.total_bytes, len(unread)) == (90, 2)
    unread.note(newest, 40)
    assert large.dropped_for
    assert not small.dropped_for
    assert not newest.dropped_for
    assert (unread.total_bytes, unread.dropped) == (70, 1)


def test_what_was_read_counts_no_longer() -> None:
    unread = UnreadAnswers(100)
    one, other = FakeReader(), FakeReader()
    unread.note(one, 80)
    unread.note(one, 20)
    unread.note(other, 70)
    unread.forget(one)
    unread.forget(one)
    unread.note(other, 100)
    assert not one.dropped_for
    assert not other.dropped_for
    assert unread.total_bytes == 100


def test_one_alone_may_have_an_answer_larger_than_the_limit() -> None:
    unread = UnreadAnswers(100)
    reader = FakeReader()
    unread.note(reader, 1_000)
    assert not reader.dropped_for
    unread.note(FakeReader(), 1)
    assert reader.dropped_for
