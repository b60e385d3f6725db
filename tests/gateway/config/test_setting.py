from __future__ import annotations

import pytest

from seqgate.gateway.config.setting import parse_iso_duration


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H", 3_600_000),
        ("P1D", 86_400_000),
        ("p2dt3h4m5.678s", 183_845_678),
        ("PT0.0019S", 1),
        ("PT-1.5S", -1500),
        ("-PT1H", -3_600_000),
        ("-PT-1H", 3_600_000),
        ("PT1H-30M", 1_800_000),
        ("PT0S", 0),
        ("PT1,5S", 1500),
        ("PT1.S", 1000),
    ],
)
def test_durations_parse_as_in_java(text: str, milliseconds: int) -> None:
    assert parse_iso_duration(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "1",
        "PT1",
        "P1H",
        "PT1D",
        "P1Y",
        "PT.5S",
        "PT1H ",
        "PT1.5H",
        "PT" + "9" * 19 + "S",
    ],
)
def test_malformed_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|longer than"):
        parse_iso_duration(text)
