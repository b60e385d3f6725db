from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest

from seqgate.gateway.admin.dead_letters import (
    MOST_NOTED,
    NO_CONTENT,
    NULL_HEADER,
    REPLAYED,
    DeadLetter,
    LetterFilter,
    letter_of,
    note_of,
    noted,
    own_headers,
    replay_plan,
)
from seqgate.gateway.coordinator.share import letters as written
from seqgate.gateway.coordinator.share.letters import headers_of
from seqgate.gateway.coordinator.share.records import SharePartitionKey
from seqgate.gateway.coordinator.share.share_partition import Letter

COUNTS = {"orders": 2}


class Read(NamedTuple):
    headers: list[tuple[str, bytes | None]]
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    partition: int = 1
    offset: int = 7


def said(**other: bytes) -> list[tuple[str, bytes | None]]:
    texts = {"topic": b"orders", "partition": b"1", "offset": b"12", "group": b"billing", "message": b"no"}
    return [(f"__dlq.errors.{name}", value) for name, value in (texts | other).items()]


def letter(**other: Any) -> DeadLetter:
    found = letter_of(Read(said()), 1_000)
    assert found is not None
    return msgspec.structs.replace(found, **other)


def test_what_a_share_group_writes_is_a_letter() -> None:
    key = SharePartitionKey("billing", UUID(int=1), 1)
    headers = headers_of(key, "orders", Letter(12, 12, 3, is_rejected=True), 12)
    found = letter_of(Read([("own", b"1"), *headers]), 1_000)
    assert found is not None
    assert found == letter(delivery_count=3, reason=written.REJECTED)
    assert own_headers([("own", b"1"), *headers]) == [("own", b"1")]
    assert (found.record, found.short_key) == ("orders-1@12", "k")


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("__dlq.errors.topic", b"orders")],
        said(partition=b"x"),
        said(offset=b"9" * 20),
        [(name, None) for name, _ in said()],
        [(REPLAYED, b"")],
    ],
    ids=["a record of its own", "no place", "no number", "no offset", "null", "a note"],
)
def test_other_records_are_no_letters(headers: list[tuple[str, bytes | None]]) -> None:
    assert letter_of(Read(headers), 1_000) is None


def test_the_headers_of_the_letter_count_and_not_those_of_its_record() -> None:
    found = letter_of(Read([*said(topic=b"forged"), *said()]), 1_000)
    assert found is not None
    assert found.source_topic == "orders"


@pytest.mark.parametrize("count", [b"9" * 4_400, b"9" * 20, "\u0663".encode(), b"-1"])
def test_a_strange_count_of_deliveries_is_none(count: bytes) -> None:
    assert letter_of(Read(said(**{"delivery.count": count})), 1_000) == letter(delivery_count=None)


@pytest.mark.parametrize(
    ("chosen", "takes"),
    [
        (LetterFilter(), True),
        (LetterFilter(group="billing", source_topic="orders", key="k"), True),
        (LetterFilter(group="other"), False),
        (LetterFilter(source_topic="other"), False),
        (LetterFilter(key="other"), False),
        (LetterFilter(since_ms=1_000, until_ms=1_001), True),
        (LetterFilter(since_ms=1_001), False),
        (LetterFilter(until_ms=1_000), False),
    ],
)
def test_a_filter(chosen: LetterFilter, takes: bool) -> None:
    assert chosen.takes(letter()) is takes


def test_what_is_refused() -> None:
    empty = letter_of(Read(said(), key=None, value=None), 1_000)
    null = letter_of(Read([("own", None), *said()]), 1_000)
    assert empty is not None
    assert null is not None
    assert empty.refusal(COUNTS) == NO_CONTENT
    assert null.refusal(COUNTS) == NULL_HEADER
    assert letter(source_topic="gone").refusal(COUNTS) == "there is no topic gone, or it is internal"
    assert letter(source_partition=2).refusal(COUNTS) == "topic orders has no partition 2"
    assert letter(source_partition=-1).refusal(COUNTS) == "topic orders has no partition -1"
    assert letter().refusal(COUNTS) is None


def test_a_plan_leaves_out_what_was_replayed_or_is_refused_before_it_takes_the_oldest() -> None:
    rows = [letter(is_replayed=True), letter(has_content=False), letter(offset=8), letter(offset=9)]
    plan = replay_plan("dlq.orders", rows, COUNTS, 1)
    assert plan.letters == [letter(offset=8)]
    assert (plan.already_replayed, plan.refused) == (1, {NO_CONTENT: 1})


@pytest.mark.parametrize(
    ("offsets", "note"), [([3, 4, 5, 7, 9, 10], b"3-5,7,9-10"), ([0], b"0"), ([1 << 62], b"%d" % (1 << 62))]
)
def test_a_note_says_which_letters_were_replayed(offsets: list[int], note: bytes) -> None:
    assert note_of(offsets) == note
    assert noted(Read([(REPLAYED, b"")], value=note)) == set(offsets)
    assert noted(Read([("other", b"")], value=note)) is None


@pytest.mark.parametrize(
    "damaged", [b"", b"x", b"1,", b"-1", b"\xff", b"0-%d" % MOST_NOTED, b"0-" + b"9" * 20, None]
)
def test_a_damaged_note_is_an_error(damaged: bytes | None) -> None:
    with pytest.raises(ValueError, match=r".+"):
        noted(Read([(REPLAYED, b"")], value=damaged))
