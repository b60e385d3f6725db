"""Turns the endpoints of pages into routes: runs the function of an endpoint and sends its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from seqgate.gateway.admin.remote.cluster import NoTopic
from seqgate.gateway.admin.request import ControlError, Unreachable
from seqgate.gateway.admin.tables import shown
from seqgate.gateway.console.answer import Confirmation, Data, Download, PageAnswer, Redirect, View, address
from seqgate.gateway.console.console import Console
from seqgate.gateway.console.page import CONFIRMED, Feed, Function, Get, Page, PageEndpoint, Post, Visit
from seqgate.gateway.console.rights import operation_of
from seqgate.gateway.console.sessions import FIELD
from seqgate.gateway.console.web.visiting import (
    NOT_STORED,
    PATIENCE_S,
    FormRefused,
    LoginNeeded,
    Renderer,
    Work,
    form_of,
    set_session_id,
    stranger,
    visit_of,
)

NOTICE: Final = "notice"
"""The field of an address with the id of a notice."""
_SEE_OTHER: Final = 303
_BAD_REQUEST: Final = 400
_FORBIDDEN: Final = 403
_UNAUTHORIZED: Final = 401


@dataclass(frozen=True, slots=True)
class Desk:
    """The parts with which requests are answered."""

    console: Console
    renderer: Renderer
    work: Work

    def routes(self, pages: tuple[Page, ...]) -> list[Route]:
        return [self._route(endpoint) for page in pages for endpoint in page.endpoints]

    def _route(self, endpoint: PageEndpoint) -> Route:
        match endpoint:
            case Get():
                return Route(endpoint.path, partial(self._get, endpoint), methods=["GET"])
            case Feed():
                return Route(endpoint.path, partial(self._feed, endpoint), methods=["GET"])
            case Post():
                return Route(endpoint.path, partial(self._post, endpoint), methods=["POST"])

    async def _get(self, endpoint: Get, request: Request) -> Response:
        visit = stranger(self.console, request)
        try:
            visit = await visit_of(self.console, request, operation_of(endpoint.path, changes=False))
            key = f"{visit.session_id} {visit.user} {request.url.path}?{request.url.query}"
            running = self.work.resume(key) or self.work.begin(partial(_found, endpoint.function, visit))
            done, _ = await asyncio.wait([asyncio.wrap_future(running.future)], timeout=PATIENCE_S)
            if not done:
                self.work.keep(key, running)
                return self._waiting(request, visit, endpoint, running.began)
            return self.sent(request, visit, done.pop().result())
        except LoginNeeded:
            return self.to_login(request)
        except ControlError as error:
            return self.refused(request, visit, error)

    def _waiting(self, request: Request, visit: Visit, endpoint: Get, began: float) -> Response:
        waited_s = int(asyncio.get_running_loop().time() - began)
        values = {"waits_for": endpoint.waits_for, "waited_s": waited_s}
        response = self._html(request, visit, View("waiting.html", values), takes_notice=False)
        response.headers["Refresh"] = "1"
        return response

    async def _feed(self, endpoint: Feed, request: Request) -> Response:
        try:
            visit = await visit_of(self.console, request, operation_of(endpoint.path, changes=False))
            answer = await self._answer(endpoint.function, visit)
        except LoginNeeded:
            return _json({"error": "your session has ended; log in again"}, _UNAUTHORIZED)
        except ControlError as error:
            return _json({"error": str(error)}, _BAD_REQUEST)
        return self.sent(request, visit, answer)

    async def _post(self, endpoint: Post, request: Request) -> Response:
        try:
            sent = await form_of(self.console, request)
            operation = operation_of(endpoint.path, changes=True)
            visit = await visit_of(self.console, request, operation, sent)
        except FormRefused:
            sentence = (
                "The form is too old or comes from another site. "
                "Open the page again, and send the form again."
            )
            return self.failed(request, stranger(self.console, request), sentence, status=_FORBIDDEN)
        except LoginNeeded:
            return self.to_login(request)
        except ControlError as error:
            return self.refused(request, stranger(self.console, request), error)
        try:
            return self.sent(request, visit, await self._answer(endpoint.function, visit))
        except ControlError as error:
            return self.refused(request, visit, error, status=_BAD_REQUEST)
        finally:
            self.work.forget(visit.session_id)

    async def _answer(self, function: Function, visit: Visit) -> PageAnswer:
        return await asyncio.wrap_future(self.work.begin(lambda: function(visit)).future)

    def sent(self, request: Request, visit: Visit, answer: PageAnswer) -> Response:
        match answer:
            case View():
                return self._html(request, visit, answer)
            case Data():
                return _json(answer.value)
            case Redirect():
                return self._redirect(visit, answer)
            case Confirmation():
                return self._html(request, visit, _question(request, visit, answer))
            case Download():
                return StreamingResponse(
                    answer.chunks,
                    media_type=answer.content_type,
                    headers={
                        "Content-Disposition": f'attachment; filename="{_file_name(answer.file_name)}"',
                        **NOT_STORED,
                    },
                )

    def _redirect(self, visit: Visit, answer: Redirect) -> Response:
        path = answer.path
        if answer.notice is not None:
            notice_id = self.console.notices.keep(visit.session_id, answer.notice)
            path += f"{'&' if '?' in path else '?'}{NOTICE}={notice_id}"
        return RedirectResponse(path, _SEE_OTHER, headers=NOT_STORED)

    def _html(self, request: Request, visit: Visit, view: View, *, takes_notice: bool = True) -> HTMLResponse:
        notice = None
        if takes_notice:
            notice = self.console.notices.take(visit.session_id, request.query_params.get(NOTICE, ""))
        text = self.renderer.page(view.template, view.values, visit, request.url.path, notice)
        response = HTMLResponse(text, view.status, headers=NOT_STORED)
        set_session_id(response, request, self.console.options, visit.session_id)
        return response

    def refused(self, request: Request, visit: Visit, error: ControlError, status: int = 200) -> Response:
        """Return the page that shows an error of the cluster, or the right that the person lacks. Where
        nothing answers, the page opens by itself when something does.
        """
        is_get = request.method == "GET"
        if visit.missing_right(str(error)) is not None:
            title = "You may not see this" if is_get else "You may not do this"
        elif isinstance(error, NoTopic):
            title = f"There is no topic {shown(error.topic, 80)}"
        else:
            title = "The cluster does not answer" if isinstance(error, Unreachable) else "This did not work"
        opens_itself = is_get and isinstance(error, Unreachable)
        return self.failed(
            request,
            visit,
            str(error),
            status=status,
            title=title,
            may_help=is_get and not isinstance(error, NoTopic),
            opens_itself=opens_itself,
        )

    def failed(
        self,
        request: Request,
        visit: Visit,
        sentence: str,
        *,
        status: int = 200,
        title: str = "This did not work",
        may_help: bool = False,
        opens_itself: bool = False,
    ) -> Response:
        """Return the page that shows why a request failed. `may_help`: it may work when it is sent again."""
        again = _path(request) if may_help else None
        values = {"sentence": sentence, "title": title, "again": again, "opens_itself": opens_itself}
        return self._html(request, visit, View("failed.html", values, status))

    def to_login(self, request: Request) -> Response:
        """Lead the browser to the login page, and back afterwards."""
        back = _path(request) if request.method == "GET" else "/"
        return RedirectResponse(address("/login", to=back), _SEE_OTHER, headers=NOT_STORED)


def _found(function: Function, visit: Visit) -> PageAnswer:
    """Return the answer of a page, and find out what its head says."""
    answer = function(visit)
    if isinstance(answer, View):
        visit.find_server()
    return answer


def _path(request: Request) -> str:
    return f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path


def _question(request: Request, visit: Visit, asked: Confirmation) -> View:
    """Return the page that asks for a confirmation; its form sends the same fields again."""
    kept = [
        (name, value)
        for name, values in visit.form.items()
        for value in values
        if name not in {FIELD, CONFIRMED, "typed"}
    ]
    values: Mapping[str, Any] = {"asked": asked, "kept": kept, "target": request.url.path}
    return View("confirmation.html", values)


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, headers=NOT_STORED, media_type="application/json")


def _file_name(text: str) -> str:
    return "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in text
    )
