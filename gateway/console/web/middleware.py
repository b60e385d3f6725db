"""The steps of every request beside its route: the check of its Host before, and the security headers after."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.console.security.hosts import Hosts
from gateway.console.web.headers import SECURITY_HEADERS

_MISDIRECTED = 421


class Guard:
    """Refuses foreign hosts, and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        """Guard an application."""
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
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
        await self._app(scope, receive, send_guarded)
