"""The newest log lines of a running gateway, and what `seqgate logs` prints of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.gateway.admin.logs import LogLine, LogLinesRequest, _text
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.runtime.loop.log_output import LINES_KEPT, RecentLine
from tests.gateway.admin.answers import answer
from tests.gateway.handlers.support import open_node


def kept(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    lines = [
        RecentLine(number, 99, "INFO", "gateway", f"line {number}", None) for number in range(1, count + 1)
    ]
    monkeypatch.setattr("seqgate.gateway.runtime.loop.log_output.recent_lines", lambda: tuple(lines))


async def test_the_newest_lines_the_oldest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(monkeypatch, 10)
    async with open_node(tmp_path) as node:

        async def numbers(**fields: int) -> list[int]:
            page = await answer(node, LogLinesRequest(**fields))
            assert page.kept == LINES_KEPT
            return [line.number for line in page.lines]

        assert await numbers() == list(range(1, 11))
        assert await numbers(limit=3) == [8, 9, 10]
        assert await numbers(after=8) == [9, 10]
        assert await numbers(after=8, limit=1) == [10]
        assert await numbers(after=10) == []
        with pytest.raises(ControlError, match="limit must be"):
            await numbers(limit=0)


async def test_a_process_that_keeps_no_lines(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        assert (await answer(node, LogLinesRequest())).lines == []


def test_no_text_of_a_client_reaches_the_terminal() -> None:
    error = "Traceback:\n  File x\nValueError: \x1b]0;title\x07\x1b[31m\n"
    first, *rest = _text([LogLine(1, 0, "ERROR", "gateway", "a\x1b[31mline", error)])
    assert first.endswith(r"ERROR gateway: a\x1b[31mline")
    assert rest == ["Traceback:", "  File x", r"ValueError: \x1b]0;title\x07\x1b[31m"]
