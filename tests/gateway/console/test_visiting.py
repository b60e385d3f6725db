"""A slow page keeps its result for a few seconds, for the browser that asked, and until a change."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from seqgate.gateway.console.answer import PageAnswer, View
from seqgate.gateway.console.web import desk, visiting
from seqgate.gateway.console.web.visiting import Running, Work
from tests.support.console_client import ConsoleClient, text_of
from tests.support.gateway_process import GatewayProcess
from tests.system.commands.conftest import seqgate


def finished() -> Running:
    future: Future[PageAnswer] = Future()
    future.set_result(View("topics.html", {}))
    return Running(future)


def test_an_answer_that_has_waited_too_long_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work()
    known = finished()
    work.keep("s person /topics?", known)
    assert work.resume("s person /topics?") is known
    work.keep("s person /topics?", known)
    monkeypatch.setattr(visiting, "KEPT_S", 0.0)
    assert work.resume("s person /topics?") is None
    unfinished = Running(Future())
    work.keep("s person /topics?", unfinished)
    assert work.resume("s person /topics?") is unfinished
    work.close()


def test_a_change_makes_what_was_found_before_old(
    console: ConsoleClient, shared_gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    seqgate("topics", "create", "vs-old", "--bootstrap", shared_gateway.bootstrap)
    monkeypatch.setattr(desk, "PATIENCE_S", 0)
    assert "Waiting for" in text_of(console.http.get("/topics/vs-old").text)
    monkeypatch.undo()
    console.send("/topics/vs-old/delete", {"confirmed": "yes", "typed": "vs-old"})
    assert "there is no topic vs-old" in text_of(console.page("/topics/vs-old"))


async def test_a_form_that_does_not_come_whole_is_no_mistake_of_the_program() -> None:
    parts = [{"type": "http.request", "body": b"csrf=", "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> Message:
        return parts.pop(0)

    with pytest.raises(HTTPException, match="before the form was whole"):
        await visiting._read_bounded(Request({"type": "http", "headers": []}, receive))
