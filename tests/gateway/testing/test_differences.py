"""The sentences that say how stored records differ from those that were sent."""

from __future__ import annotations

import pytest

from seqgate.gateway.testing import Broker, StoredRecord
from seqgate.gateway.testing.differences import explain_differences
from tests.gateway.testing.exchanges import produce


def stored(*values: bytes | None, partition: int = 0) -> list[StoredRecord]:
    return [
        StoredRecord("t", partition, offset, None, value, (), 0, -1) for offset, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("have", "want", "sentence"),
    [
        (stored(b"a", b"b"), [b"a", b"b"], None),
        (stored(), [], None),
        (stored(b"a", None), [b"a", None], None),
        (stored(b"a", b"a"), [b"a", b"a"], None),
        (stored(b"a"), [b"a", b"b"], "1 lost: 'b'"),
        (stored(b"a", b"a"), [b"a"], "1 doubled: 'a'"),
        (stored(b"a", b"x"), [b"a"], "1 unexpected: 'x'"),
        (stored(b"a", None), [b"a"], "1 unexpected: null"),
        (stored(b"b", b"x", b"b"), [b"a", b"b"], "1 lost: 'a'; 1 doubled: 'b'; 1 unexpected: 'x'"),
        (
            stored(b"b", b"a"),
            [b"a", b"b"],
            "reordered: 'a' was sent before 'b', and is stored after it (t-0, offsets 1 and 0)",
        ),
        (stored(b"b") + stored(b"a", partition=1), [b"a", b"b"], None),
        (
            stored(),
            [b"%d" % n for n in range(12)],
            "12 lost: '0', '1', '2', '3', '4', '5', '6', '7', '8', '9' and 2 more",
        ),
        (stored(), [b"y" * 100], f"1 lost: '{'y' * 60}...'"),
    ],
)
def test_each_difference_has_a_sentence(
    have: list[StoredRecord], want: list[bytes | None], sentence: str | None
) -> None:
    assert explain_differences(have, want) == sentence


def test_a_repeated_value_is_not_reordered() -> None:
    assert explain_differences(stored(b"a", b"b", b"a"), [b"a", b"b", b"a"]) is None


def test_the_broker_says_which_topic_it_is(broker: Broker) -> None:
    produce(broker, b"one", b"two")
    broker.assert_exactly_once("t", [b"one", b"two"])
    with pytest.raises(AssertionError, match="topic t: 1 lost: 'three'"):
        broker.assert_exactly_once("t", [b"one", b"two", b"three"])
    with pytest.raises(LookupError, match="there is no topic 'u'"):
        broker.assert_exactly_once("u", [])
