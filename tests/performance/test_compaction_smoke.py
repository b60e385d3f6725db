"""Both cores read the records of a log in both passes of a compaction, and the table has a row for each."""

from __future__ import annotations

import pytest

from tests.performance import compaction_speed


def test_the_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_speed, "ROUNDS", 1)
    compaction_speed.main()
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == ["| interpreted", "| compiled"]
