"""The checker of a topic's contents finds every planted breach."""

from __future__ import annotations

from tests.faults.deduplication.checker import Row, check

FILES = {"reader": {0: b"first", 6: b"second", 13: b"third"}, "other": {0: b"only"}}
SOUND = [
    Row(0, 0, "reader", 0, b"first"),
    Row(0, 2, "other", 0, b"only"),
    Row(0, 5, "reader", 13, b"third"),
    Row(1, 0, "reader", 6, b"second"),
]


def test_nothing_is_wrong() -> None:
    verdict = check(FILES, reversed(SOUND))
    assert verdict.breaches == []
    assert verdict.counts == {"records checked": 4, "records lost": 0, "lines": 4}


def test_a_lost_line() -> None:
    assert check(FILES, SOUND[:-1]).breaches == ["reader 6 is lost"]


def test_a_doubled_line() -> None:
    doubled = check(FILES, [*SOUND, Row(1, 1, "reader", 6, b"second")])
    assert doubled.breaches == ["partition 1 offset 1: reader 6 is doubled"]
    assert doubled.counts["records doubled"] == 1


def test_a_line_in_two_partitions_is_doubled() -> None:
    assert check(FILES, [*SOUND, Row(3, 0, "reader", 0, b"first")]).breaches == [
        "partition 3 offset 0: reader 0 is doubled"
    ]


def test_lines_out_of_order() -> None:
    rows = [*SOUND[1:3], Row(0, 9, "reader", 0, b"first"), SOUND[3]]
    assert check(FILES, rows).breaches == ["partition 0 offset 9: reader 0 comes after 13"]


def test_another_value_and_another_name() -> None:
    rows = [Row(0, 0, "reader", 0, b"worst"), *SOUND[1:], Row(2, 0, "nobody", 0, b"first")]
    assert check(FILES, rows).breaches == [
        "partition 0 offset 0: reader 0 is not what the file says",
        "partition 2 offset 0: nobody 0 is of no file",
    ]
