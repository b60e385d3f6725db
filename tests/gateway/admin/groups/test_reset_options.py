"""The options of `seqgate groups reset` are parsed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from seqgate.gateway.admin.groups.reset import TopicSelection, reset_target, topic_selections
from seqgate.gateway.admin.times import timestamp_ms

NONE: dict[str, Any] = {"earliest": False, "latest": False, "timestamp": None, "shift": None, "offset": None}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"earliest": True}, ("earliest", 0)),
        ({"latest": True}, ("latest", 0)),
        ({"timestamp": "1700000000000"}, ("timestamp", 1_700_000_000_000)),
        ({"shift": -3}, ("shift", -3)),
        ({"shift": 0}, ("shift", 0)),
        ({"offset": 0}, ("offset", 0)),
    ],
)
def test_one_target(given: dict[str, Any], expected: tuple[str, int]) -> None:
    assert reset_target(**NONE | given) == expected


@pytest.mark.parametrize("given", [{}, {"earliest": True, "latest": True}, {"shift": 0, "offset": 0}])
def test_none_or_two_targets(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="exactly one of --to-earliest"):
        reset_target(**NONE | given)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20.123+00:00", 1_700_000_000_123),
        ("2023-11-15 00:13:20+02:00", 1_700_000_000_000),
        ("2023-11-14T23:13:20", 1_700_000_000_000),
        ("2023-11-14", 1_699_916_400_000),
    ],
)
def test_moments(text: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-1")  # in POSIX notation, UTC-1 is an hour east of Greenwich
    time.tzset()
    try:
        assert timestamp_ms(text) == expected
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["", "-1", "yesterday", "1.5", "2023-13-01", "٣"])
def test_no_moments(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid time"):
        timestamp_ms(text)


def test_topics() -> None:
    assert topic_selections(["a", "b:0,3", "c:1", "c:2", "d:1", "d"]) == [
        TopicSelection("a"),
        TopicSelection("b", [0, 3]),
        TopicSelection("c", [1, 2]),
        TopicSelection("d"),
    ]
    assert topic_selections(["d", "d:1"]) == [TopicSelection("d")]


@pytest.mark.parametrize("text", ["", ":1", "a:", "a:x", "a:1,", "a:-1", "a:1:2"])
def test_no_topics(text: str) -> None:
    with pytest.raises(ValueError, match="topic"):
        topic_selections([text])
