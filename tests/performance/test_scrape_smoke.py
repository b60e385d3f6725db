"""The benchmark of scrapes measures requests with and without scrapes."""

from __future__ import annotations

from pathlib import Path

from tests.performance.scrape import measure, table


def test_both_are_measured(tmp_path: Path) -> None:
    measured = measure(tmp_path, partitions=5, groups=3, seconds=0.4, rounds=1)
    assert measured.without_s
    assert measured.with_s
    assert measured.scrapes_s
    assert measured.answer_bytes > 10_000
    assert table(measured).count("\n") == 4
