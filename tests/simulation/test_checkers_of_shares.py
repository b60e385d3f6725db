"""Checkers of share groups find breaches in small histories: records that come after their end, early, too
often or not at all, and letters that are missing, doubled or wrong.

They accept histories that only look wrong: the times between a request and its answer are the gateway's.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.checkers import shares
from tests.simulation.checkers.facts import Facts
from tests.simulation.checkers.shares import REJECTED, TOO_OFTEN
from tests.simulation.events_of_shares import (
    Delivered,
    FoundNothing,
    GroupDone,
    HolderGone,
    LetterRead,
    LettersAllowed,
    LettersRefused,
    Said,
    SaidDurably,
    Saying,
    ShareGroupBegun,
)
from tests.simulation.history import Acknowledged, Event, Fetched, FinalRead, GatewayCrashed, History, Sent
from tests.simulation.story import P0, rec

CHECKERS = (
    shares.done_again,
    shares.retried_early,
    shares.delivered_too_often,
    shares.letters,
    shares.held_up,
)
DELAYS_MS = (100, 300)
LIMIT = 3
LOCK_MS = 1_000


class ShareStory:
    """A history under construction, of group g and its partition 0, in which answers take 5 ms."""

    def __init__(self, *, copies: bool = False) -> None:
        self.history = History()
        self.add(ShareGroupBegun(0, "g", DELAYS_MS, LIMIT, LOCK_MS, copies))

    def add(self, *events: Event) -> None:
        for event in events:
            self.history.add(event)

    def delivered(self, at_ms: int, count: int, *, member: str = "m", offset: int = 0) -> None:
        self.add(Delivered(at_ms, "g", member, P0, ((offset, count),), at_ms - 5))

    def says(self, at_ms: int, said: Said, *, answered: bool = True, member: str = "m") -> None:
        records = ((0, said),)
        self.add(Saying(at_ms, "g", member, P0, records))
        if answered:
            self.add(SaidDurably(at_ms + 5, "g", member, P0, records, at_ms))

    def gone(self, at_ms: int, since_ms: int, member: str = "m") -> None:
        self.add(HolderGone(at_ms, "g", member, since_ms))

    def letter(
        self, count: int = 1, message: str = REJECTED, *, value: bytes | None = None, offset: str = "0"
    ) -> None:
        said = (P0.topic, "0", offset, "g", str(count), message)
        names = ("topic", "partition", "offset", "group", "delivery.count", "message")
        headers = tuple((f"__dlq.errors.{name}", text) for name, text in zip(names, said, strict=True))
        self.add(LetterRead(90_000, "g", 7, headers, None if value is None else b"k", value))

    def end(self) -> None:
        """Add the last reading: record 0 at offset 0."""
        self.add(Sent(1, rec(0), P0, b"k"), GroupDone(90_000, "g"), FinalRead(90_000))
        self.add(Fetched(90_001, "f", P0, False, 0, 1, ((0, rec(0).encode()),), 1, 1, 0))

    def found(self) -> set[str]:
        facts = Facts(self.history)
        return {checker.__name__ for checker in CHECKERS if checker(facts)}


class TestDoneAgain:
    def test_a_record_that_comes_after_its_acceptance_was_answered(self) -> None:
        story = ShareStory()
        story.delivered(10, 1)
        story.says(20, Said.ACCEPT)
        story.delivered(5_000, 2)
        assert story.found() == {"done_again"}

    @pytest.mark.parametrize("answered", [False, True])
    def test_a_record_that_was_accepted_while_another_fetch_was_asked_for(self, *, answered: bool) -> None:
        story = ShareStory()
        story.delivered(10, 1, member="slow")
        story.delivered(1_300, 2)
        story.says(1_310, Said.ACCEPT, answered=answered)
        story.says(1_305, Said.RELEASE, answered=False, member="slow")
        assert story.found() == set()

    def test_two_members_with_the_last_word(self) -> None:
        story = ShareStory()
        story.delivered(10, 1, member="a")
        story.delivered(900, 2, member="b")
        story.says(910, Said.ACCEPT, member="b")
        story.says(912, Said.ACCEPT, member="a")
        assert story.found() == {"done_again", "retried_early"}

    @pytest.mark.parametrize("said_at_ms", [20, 1_212])
    def test_a_word_that_may_come_after_the_lock_ran_out_says_nothing(self, said_at_ms: int) -> None:
        """It is answered with success where the group has gone on behind the record, as in Kafka."""
        story = ShareStory()
        story.delivered(10, 1, member="a")
        story.says(said_at_ms, Said.ACCEPT, member="a", answered=False)
        story.delivered(1_200, 2, member="b")
        story.says(1_210, Said.ACCEPT, member="b")
        story.add(SaidDurably(1_217, "g", "a", P0, ((0, Said.ACCEPT),), said_at_ms))
        assert story.found() == set()


class TestRetriedEarly:
    def test_a_released_record_before_its_delay(self) -> None:
        story = ShareStory()
        story.delivered(10, 1)
        story.says(20, Said.RELEASE)
        story.delivered(117, 2)
        assert story.found() == {"retried_early"}

    def test_a_released_record_after_its_delay(self) -> None:
        story = ShareStory()
        story.delivered(10, 1)
        story.says(20, Said.RELEASE)
        story.delivered(121, 2)
        story.says(125, Said.RELEASE)
        story.delivered(426, 3)
        assert story.found() == set()

    def test_the_delay_of_the_second_delivery_is_longer(self) -> None:
        story = ShareStory()
        story.delivered(10, 2)
        story.says(20, Said.RELEASE)
        story.delivered(300, 3)
        assert story.found() == {"retried_early"}

    def test_a_lock_that_runs_out_too_soon(self) -> None:
        story = ShareStory()
        story.delivered(10, 1)
        story.delivered(1_050, 2)
        assert story.found() == {"retried_early"}

    def test_a_delay_outlives_a_crash_if_the_release_was_answered(self) -> None:
        story = ShareStory()
        story.delivered(10, 2)
        story.says(20, Said.RELEASE)
        story.add(GatewayCrashed(30, "kill"))
        story.delivered(50, 3)
        assert story.found() == {"retried_early"}

    @pytest.mark.parametrize(
        "tell",
        [
            lambda story: story.gone(200, 12),
            lambda story: story.add(GatewayCrashed(12, "kill")),
            lambda story: story.says(12, Said.RELEASE, answered=False),
        ],
    )
    def test_a_lock_that_may_have_ended(self, tell: Callable[[ShareStory], None]) -> None:
        story = ShareStory()
        story.delivered(10, 1)
        tell(story)
        story.delivered(150, 2)
        assert story.found() == set()


class TestDeliveredTooOften:
    def test_a_delivery_beyond_the_limit(self) -> None:
        story = ShareStory()
        story.delivered(10, LIMIT + 1)
        assert story.found() == {"delivered_too_often"}

    def test_a_count_that_does_not_rise_after_an_answered_release(self) -> None:
        story = ShareStory()
        story.delivered(10, 2)
        story.says(20, Said.RELEASE)
        story.add(GatewayCrashed(30, "kill"))
        story.delivered(800, 2)
        assert story.found() == {"delivered_too_often"}

    def test_a_crash_forgets_a_delivery_about_which_nothing_was_said(self) -> None:
        story = ShareStory()
        story.delivered(10, 2)
        story.add(GatewayCrashed(30, "kill"))
        story.delivered(800, 2)
        assert story.found() == set()

    def test_nothing_forgets_a_delivery_without_a_crash(self) -> None:
        story = ShareStory()
        story.delivered(10, 1)
        story.delivered(5_000, 1)
        assert story.found() == {"delivered_too_often"}


class TestLetters:
    def test_a_record_that_nobody_accepted_and_that_has_no_letter(self) -> None:
        story = ShareStory()
        story.delivered(10, 3)
        story.end()
        assert story.found() == {"letters"}

    def test_a_record_that_was_never_delivered(self) -> None:
        story = ShareStory()
        story.end()
        assert story.found() == {"letters"}

    def test_an_acceptance_without_an_answer_explains_a_missing_letter(self) -> None:
        story = ShareStory()
        story.delivered(10, 3)
        story.says(20, Said.ACCEPT, answered=False)
        story.end()
        assert story.found() == set()

    def test_an_accepted_record_with_a_letter(self) -> None:
        story = ShareStory()
        story.delivered(10, 3)
        story.says(20, Said.ACCEPT)
        story.letter(3, TOO_OFTEN)
        story.end()
        assert story.found() == {"letters"}

    @pytest.mark.parametrize(("number", "found"), [(0, {"letters"}), (1, set()), (2, {"letters"})])
    def test_a_rejected_record_has_one_letter(self, number: int, found: set[str]) -> None:
        story = ShareStory()
        story.delivered(10, 1)
        story.says(20, Said.REJECT)
        for _ in range(number):
            story.letter()
        story.end()
        assert story.found() == found

    def test_a_topic_that_refused_letters_explains_a_missing_one(self) -> None:
        story = ShareStory()
        story.delivered(10, 1)
        story.says(20, Said.REJECT)
        story.add(LettersRefused(15, "g"), LettersAllowed(100, "g"))
        story.end()
        assert story.found() == set()

    @pytest.mark.parametrize(
        ("count", "message", "value", "offset"),
        [
            (2, REJECTED, b"", "0"),
            (1, TOO_OFTEN, b"", "0"),
            (1, "Because.", b"", "0"),
            (1, REJECTED, b"another record", "0"),
            (1, REJECTED, b"", "1"),
        ],
    )
    def test_a_letter_that_says_something_wrong(
        self, count: int, message: str, value: bytes, offset: str
    ) -> None:
        story = ShareStory(copies=True)
        story.delivered(10, 1)
        story.says(20, Said.REJECT)
        story.letter(count, message, value=value or rec(0).encode(), offset=offset)
        story.end()
        assert story.found() == {"letters"}

    def test_a_letter_without_content_where_the_group_copies_none(self) -> None:
        story = ShareStory()
        story.delivered(10, 1)
        story.says(20, Said.REJECT)
        story.letter(value=rec(0).encode())
        story.end()
        assert story.found() == {"letters"}


class TestHeldUp:
    def nothing(self, asked_at_ms: int) -> FoundNothing:
        return FoundNothing(asked_at_ms + 200, "g", "m", P0, asked_at_ms)

    def test_a_new_record_that_a_waiting_member_does_not_get(self) -> None:
        story = ShareStory()
        story.add(Sent(1, rec(0), P0), Acknowledged(20, rec(0), P0, 0), self.nothing(30))
        assert story.found() == {"held_up"}

    def test_a_released_record_that_is_due(self) -> None:
        story = ShareStory()
        story.delivered(10, 1)
        story.says(20, Said.RELEASE)
        story.add(self.nothing(140))
        assert story.found() == set()
        story.add(self.nothing(240))
        assert story.found() == {"held_up"}

    @pytest.mark.parametrize("gone_ms", [10, 3_000])
    def test_a_member_that_is_gone_may_have_had_the_record(self, gone_ms: int) -> None:
        story = ShareStory()
        story.add(Sent(1, rec(0), P0), Acknowledged(20, rec(0), P0, 0), self.nothing(30))
        story.gone(gone_ms, gone_ms - 5, "other")
        assert story.found() == set()
