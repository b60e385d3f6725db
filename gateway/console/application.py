"""Composes the console's web application, and limits how long a request to it may take to come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from seqgate.gateway.console.console import Console
from seqgate.gateway.console.pages import PAGES
from seqgate.gateway.console.web.desk import Desk
from seqgate.gateway.console.web.login import Guard, Hosts, login_routes
from seqgate.gateway.console.web.visiting import STATIC, Renderer, Work, stranger

_TITLES: Final = {404: "There is no such page", 405: "This address takes no such request"}


def application(console: Console, on_start: Callable[[], None] = lambda: None) -> ASGIApp:
    """Return the web application of a console; `on_start` is called when it runs."""
    work = Work()
    desk = Desk(console, Renderer(PAGES), work)

    @asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        console.sampler.start()
        on_start()
        yield
        work.close()
        console.close()

    async def no_page(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        title = _TITLES.get(error.status_code, "This did not work")
        sentence = "Check the address, or choose a page from the navigation."
        if error.status_code not in _TITLES:
            sentence = error.detail
        visit = stranger(console, request)
        return desk.failed(request, visit, sentence, status=error.status_code, title=title)

    async def mistake(request: Request, _: Exception) -> Response:
        sentence = "The console has a mistake in its program. Its log has the details."
        return desk.failed(request, stranger(console, request), sentence, status=500)

    pages = Starlette(
        routes=[*login_routes(desk), *desk.routes(PAGES), Mount("/static", StaticFiles(directory=STATIC))],
        exception_handlers={HTTPException: no_page, Exception: mistake},
        lifespan=running,
    )
    return Guard(pages, Hosts(console.options.listen[0], console.options.public_names))


# Closes connections that send nothing: they would take the places of other browsers. Uvicorn itself limits
# only how long a connection may be idle after an answer.

REQUEST_TIMEOUT_S: Final = 60.0
"""Time for the next whole request with its form, at most twice that where something has come before; then
the connection is closed.
"""


class TimedProtocol(H11Protocol):
    """Closes a connection that has waited for the same request, or the rest of it, since the last look."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._seen: RequestResponseCycle | None = None
        self._next_look = self.loop.call_later(REQUEST_TIMEOUT_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._next_look.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        request = self.cycle
        is_answered_now = request is not None and not request.more_body and not request.response_complete
        is_sent = not self.transport.get_write_buffer_size()  # a slow browser may still read an answer
        if request is self._seen and is_sent and not is_answered_now:
            self.transport.abort()
            return
        self._seen = request
        self._next_look = self.loop.call_later(REQUEST_TIMEOUT_S, self._look)
