"""The session cookie."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from seqgate.gateway.console.options import ConsoleOptions
from seqgate.gateway.console.security.sessions import new_id

_SHORTEST: Final = 20
_LONGEST: Final = 64


def cookie_name(options: ConsoleOptions) -> str:
    """Return the name of the cookie; browsers share cookies among the ports of a host, so the port is part of
    the name.
    """
    return f"seqgate_console_{options.listen[1]}"


def session_id_of(request: Request, options: ConsoleOptions) -> str | None:
    """Return the id in the cookie of a request; None when the cookie is missing or not of the console's
    making.
    """
    found = request.cookies.get(cookie_name(options), "")
    return found if _SHORTEST <= len(found) <= _LONGEST and found.isascii() else None


def set_session_id(response: Response, request: Request, options: ConsoleOptions, session_id: str) -> None:
    """Give the browser a session id that scripts can't read and that other sites can't send."""
    response.set_cookie(
        cookie_name(options),
        session_id,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path="/",
    )


def fresh_session_id() -> str:
    """Return an id for a browser that has none."""
    return new_id()
