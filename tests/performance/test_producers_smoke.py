"""The benchmark of many producers finds all of them, from a snapshot and from the batches."""

from __future__ import annotations

import pytest

from tests.performance.producers import main


def test_each_start_finds_all_producers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--count", "500", "--rounds", "1"]) == 0
    *_, stopped, crashed = capsys.readouterr().out.splitlines()
    assert stopped.startswith("| 500 producers, after a clean stop |")
    assert crashed.startswith("| 500 producers, after a crash, no snapshot |")
