"""The benchmark of retries measures each delay of each record, and none comes early."""

from __future__ import annotations

import pytest

from tests.performance.retry_delays import DELAYS_MS, early, main


def test_no_record_comes_early(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--records", "40", "--rate", "100"]) == 0
    rows = [[cell.strip() for cell in line.split("|")] for line in capsys.readouterr().out.splitlines()[2:]]
    assert [(row[2], row[6]) for row in rows] == [*[("40", "0")] * len(DELAYS_MS), ("120", "0")]


def test_a_record_before_its_time_is_early() -> None:
    assert early([0.0, 3.5, -0.1]) == 1
