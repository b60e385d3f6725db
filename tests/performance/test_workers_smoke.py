from __future__ import annotations

import pytest

from tests.performance.workers import ROWS, main


def test_one_and_two_workers_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--workers", "1", "2", "--seconds", "0.5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[2].strip() for line in lines[2:]] == ["1", "2"] * len(ROWS)
