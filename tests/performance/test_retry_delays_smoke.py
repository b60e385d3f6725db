"""The benchmark of retries measures each delay of each record, and none comes early."""

from __future__ import annotations

import pytest

from tests.performance.retry_delays import ANSWER, DELAYS_MS, FLUSH, TIMER, early, main


def test_no_record_comes_early(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--records", "40", "--rate", "100"]) == 0
    late, parts = (
        [[cell.strip() for cell in line.split("|")] for line in table.splitlines()[2:]]
        for table in capsys.readouterr().out.split("\n\n")
    )
    assert [(row[2], row[6]) for row in late] == [*[("40", "0")] * len(DELAYS_MS), ("120", "0")]
    measured = {row[1]: int(row[2]) for row in parts}
    assert measured[FLUSH] == measured.get(TIMER, 0) + measured.get(ANSWER, 0) == 120


def test_a_record_before_its_time_is_early() -> None:
    assert early([0.0, 3.5, -0.1]) == 1
