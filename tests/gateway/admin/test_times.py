from __future__ import annotations

import pytest

from seqgate.gateway.admin.times import duration_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0ms", 0), ("500ms", 500), ("30s", 30_000), ("5m", 300_000), (" 2 h ", 7_200_000), ("1d", 86_400_000)],
)
def test_lengths_of_time(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "5 min", "1.5h", "5m5s", "\u0665m"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="not a length of time"):
        duration_ms(text)
