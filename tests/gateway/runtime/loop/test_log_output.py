from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest

from seqgate.gateway.runtime.loop import recent_lines
from seqgate.gateway.runtime.loop.log_output import JSON, TEXT, UNLIMITED, LineLimit, handler_for, name_worker


def record(message: str = "refused %s", *, error: BaseException | None = None) -> logging.LogRecord:
    failure = (type(error), error, None) if error else None
    made = logging.LogRecord("gateway.x", logging.WARNING, "file.py", 1, message, ("it",), failure)
    made.created = 1_795_372_352.4179
    return made


def written(line_format: str, path: Path, *records: logging.LogRecord) -> list[str]:
    handler = handler_for(line_format, str(path), lambda: 0.0)
    for one in records:
        handler.handle(one)
    handler.close()
    return path.read_text().splitlines()


def test_a_text_line_has_its_time_in_utc_and_says_so(tmp_path: Path) -> None:
    assert written(TEXT, tmp_path / "log", record()) == [
        "2026-11-22T18:32:32.417Z WARNING gateway.x: refused it",
    ]


def test_a_json_line_is_one_object_whatever_the_client_sent(tmp_path: Path) -> None:
    lines = written(JSON, tmp_path / "log", record('a "b"\n%s'), record(error=ValueError("boom")))
    first, second = (json.loads(line) for line in lines)
    assert first == {
        "time": "2026-11-22T18:32:32.417Z",
        "level": "WARNING",
        "logger": "gateway.x",
        "message": 'a "b"\\nit',
    }
    assert second["error"].endswith("ValueError: boom")


def test_a_rotated_file_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    handler = handler_for(TEXT, str(path), lambda: 0.0)
    handler.handle(record())
    path.rename(tmp_path / "log.1")
    handler.handle(record())
    handler.close()
    assert [len((tmp_path / name).read_text().splitlines()) for name in ("log", "log.1")] == [1, 1]


def test_without_a_file_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    handler = handler_for(TEXT, None, lambda: 0.0)
    assert isinstance(handler, logging.StreamHandler)
    assert handler.stream is sys.stderr
    handler.handle(record())
    assert capsys.readouterr().err.endswith("gateway.x: refused it\n")


def test_the_record_of_changes_is_never_cut_short() -> None:
    limit = LineLimit(lambda: 0.0, lines_per_second=1)
    lines = [logging.LogRecord(UNLIMITED, logging.INFO, "f.py", 1, "x", (), None) for _ in range(50)]
    assert all(limit.filter(line) for line in lines)


def test_root_returns_to_the_level_of_the_setting() -> None:
    before = logging.getLogger().level
    try:
        recent_lines.set_start_level("ERROR")
        recent_lines.set_level(recent_lines.ROOT, "DEBUG")
        assert recent_lines.levels()[recent_lines.ROOT] == "DEBUG"
        recent_lines.set_level(recent_lines.ROOT, None)
        assert recent_lines.levels()[recent_lines.ROOT] == "ERROR"
    finally:
        recent_lines.set_start_level("INFO")
        logging.getLogger().setLevel(before)


@pytest.mark.parametrize(("line_format", "shown"), [(TEXT, " worker 2 WARNING "), (JSON, '"worker": 2')])
def test_each_line_has_the_number_of_its_worker(
    line_format: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = handler_for(line_format, str(tmp_path / "log"), lambda: 0.0)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    name_worker(2)
    handler.handle(record())
    handler.close()
    assert shown in (tmp_path / "log").read_text()
