from __future__ import annotations

import pytest

from tests.performance.failover import main
from tests.performance.outage import percentile


def test_a_stop_and_the_death_of_a_worker_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kills", "0", "--stops", "1", "--workers", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].split(":")[0].strip() for line in lines[2:]] == [
        *["gateway stopped"] * 2,
        *["worker killed"] * 2,
    ]


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.9, 90), (0.99, 99), (1.0, 100)])
def test_percentiles_by_rank(share: float, value: int) -> None:
    assert percentile(range(1, 101), share) == value
    assert percentile([7], share) == 7
