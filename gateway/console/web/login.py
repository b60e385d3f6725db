"""The pages to log in and out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import anyio.to_thread
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seqgate.gateway.admin.request import ControlError, Unreachable
from seqgate.gateway.config.listeners import is_loopback
from seqgate.gateway.console.answer import View
from seqgate.gateway.console.page import Visit
from seqgate.gateway.console.sessions import new_id
from seqgate.gateway.console.web.desk import Desk
from seqgate.gateway.console.web.visiting import (
    MOST_FIELDS,
    NOT_STORED,
    SECURITY_HEADERS,
    FormRefused,
    form_of,
    set_session_id,
    stranger,
)

_SEE_OTHER: Final = 303
_TOO_MANY: Final = 429
_FORBIDDEN: Final = 403


def login_routes(desk: Desk) -> list[Route]:
    async def show(request: Request) -> Response:
        return await _form(desk, request, stranger(desk.console, request))

    async def log_in(request: Request) -> Response:
        try:
            sent = await form_of(desk.console, request)
        except FormRefused:
            visit = stranger(desk.console, request)
            return await _form(desk, request, visit, "The form was too old. Log in again.", _FORBIDDEN)
        return await _log_in(desk, request, stranger(desk.console, request, sent))

    async def log_out(request: Request) -> Response:
        try:
            await form_of(desk.console, request)
        except FormRefused:
            return RedirectResponse("/", _SEE_OTHER, headers=NOT_STORED)
        visit = stranger(desk.console, request)
        ended = desk.console.sessions.end(visit.session_id)
        if ended is not None:
            await anyio.to_thread.run_sync(desk.console.connections.forget, ended)
        response = RedirectResponse("/login", _SEE_OTHER, headers=NOT_STORED)
        set_session_id(response, request, desk.console.options, new_id())
        return response

    return [
        Route("/login", show, methods=["GET"]),
        Route("/login", log_in, methods=["POST"]),
        Route("/logout", log_out, methods=["POST"]),
    ]


async def _form(
    desk: Desk, request: Request, visit: Visit, error: str | None = None, status: int = 200
) -> Response:
    try:
        needs_login = bool(await anyio.to_thread.run_sync(desk.console.cluster_login.mechanisms))
    except ControlError as failed:
        return desk.failed(request, visit, str(failed))
    values = {
        "error": error,
        "to": _own_path(visit.text("to")),
        "username": visit.text("username"),
        "needs_login": needs_login,
    }
    return desk.sent(request, visit, View("login.html", values, status))


async def _log_in(desk: Desk, request: Request, visit: Visit) -> Response:
    username, password = visit.text("username").strip(), visit.text("password")
    if not username or not password:
        return await _form(desk, request, visit, "Give a user name and a password.")
    limit = desk.console.login_limit
    wait_s = limit.begin(username, visit.address)
    if wait_s > 0:
        sentence = f"There were too many failed logins. Try again in {math.ceil(wait_s)} s."
        return await _form(desk, request, visit, sentence, _TOO_MANY)
    try:
        security = await anyio.to_thread.run_sync(desk.console.cluster_login.log_in, username, password)
    except ControlError as error:
        if isinstance(error, Unreachable):
            limit.take_back(username, visit.address)
        return await _form(desk, request, visit, str(error), _FORBIDDEN)
    limit.take_back(username, visit.address)
    desk.console.sessions.end(visit.session_id)
    response = RedirectResponse(_own_path(visit.text("to")), _SEE_OTHER, headers=NOT_STORED)
    set_session_id(response, request, desk.console.options, desk.console.sessions.begin(security))
    return response


def _own_path(text: str) -> str:
    """Return a path of this console; `/` in place of anything that may lead to another site."""
    is_own = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if is_own else "/"


# The steps of every request beside its route: the checks of its Host and the size of its query before, and
# the security headers after.

_MISDIRECTED = 421
_TOO_LONG = 414


class Guard:
    """Refuses foreign hosts and huge queries, and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if not self._hosts.accepts(Request(scope).headers.get("host", "")):
            refusal = PlainTextResponse(
                "The console does not serve this host name. Name it with --public-name.\n", _MISDIRECTED
            )
            await refusal(scope, receive, send_guarded)
            return
        if scope["query_string"].count(b"&") >= MOST_FIELDS:
            refusal = PlainTextResponse(f"An address may have at most {MOST_FIELDS:,} fields.\n", _TOO_LONG)
            await refusal(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)


# Checks the Host header, against a foreign page whose name is made to lead to this machine (DNS rebinding).


class Hosts:
    """The host names under which browsers may reach the console."""

    def __init__(self, listen_host: str, public_names: Iterable[str]) -> None:
        """Accept the given names; beyond the loopback without names, accept every name."""
        self._names = {name.lower() for name in public_names}
        self._loopback_only = is_loopback(listen_host)
        self._any = not self._loopback_only and not self._names

    def accepts(self, header: str) -> bool:
        host = _host(header)
        if self._any or host in self._names:
            return True
        return is_loopback(host)


def _host(header: str) -> str:
    """Return the host of `HOST:PORT`, in lower case, without the brackets of an IPv6 address."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()
