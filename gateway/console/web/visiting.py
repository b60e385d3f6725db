"""Makes a visit of a request: who asks, what the address and the form say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio.to_thread
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from gateway.admin.remote.client_security import ClientSecurity
from gateway.admin.request import ControlError
from gateway.console.console import Console
from gateway.console.page import Upload, Visit
from gateway.console.security.tokens import FIELD
from gateway.console.web.cookies import fresh_session_id, session_id_of

MOST_FORM_BYTES: Final = 8 << 20
"""The largest form with its files; a larger one is refused."""
MOST_FIELDS: Final = 2_000
_TOO_LARGE: Final = 413


class LoginNeeded(Exception):
    """The listener of the cluster needs a login, and the browser has no session."""


class FormRefused(Exception):
    """A form came without the token of its session."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The fields and files of a form."""

    fields: Mapping[str, Sequence[str]] = field(default_factory=dict)
    uploads: Mapping[str, Upload] = field(default_factory=dict)


async def visit_of(console: Console, request: Request, sent: Sent) -> Visit:
    """Return the visit of a request. Raises LoginNeeded, and ControlError when the cluster can't be asked."""
    session_id = session_id_of(request, console.options) or fresh_session_id()
    login = console.sessions.login(session_id)
    if login is None:
        login = await anyio.to_thread.run_sync(_open_login, console)
    return Visit(
        console=console,
        security=login,
        session_id=session_id,
        address=request.client.host if request.client else "",
        path={name: str(value) for name, value in request.path_params.items()},
        query={name: request.query_params.getlist(name) for name in request.query_params},
        form=sent.fields,
        uploads=sent.uploads,
    )


def stranger(console: Console, request: Request, sent: Sent) -> Visit:
    """Return the visit of somebody without a login, for the login page and for errors."""
    return Visit(
        console=console,
        security=ClientSecurity(),
        session_id=session_id_of(request, console.options) or fresh_session_id(),
        address=request.client.host if request.client else "",
        query={name: request.query_params.getlist(name) for name in request.query_params},
        form=sent.fields,
    )


def _open_login(console: Console) -> ClientSecurity:
    """Return how visitors connect to a listener without logins. Raises LoginNeeded for one with logins."""
    if console.way_in.mechanisms():
        raise LoginNeeded
    return console.options.security


async def form_of(console: Console, request: Request) -> Sent:
    """Return the form of a request after checking its token and its origin. Raises FormRefused and HTTPException."""
    if request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        raise FormRefused
    await _read_bounded(request)
    try:
        form = await request.form(max_fields=MOST_FIELDS, max_part_size=MOST_FORM_BYTES)
    except HTTPException as error:
        raise ControlError(f"the form can't be read: {error.detail}") from None
    sent = await _sent(form)
    session_id = session_id_of(request, console.options)
    token = (sent.fields.get(FIELD) or [""])[-1]
    if session_id is None or not console.tokens.fits(session_id, token):
        raise FormRefused
    return sent


async def _read_bounded(request: Request) -> None:
    """Read the body, at most MOST_FORM_BYTES of it."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_FORM_BYTES:
            raise HTTPException(_TOO_LARGE, f"a form must be smaller than {MOST_FORM_BYTES >> 20} MiB")
    request._body = bytes(body)  # noqa: SLF001 - Starlette's own place of a body that was read


async def _sent(form: FormData) -> Sent:
    fields: dict[str, list[str]] = {}
    uploads: dict[str, Upload] = {}
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            content = await value.read()
            if value.filename or content:
                uploads[name] = Upload(value.filename or "", content)
        else:
            fields.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return Sent(fields, uploads)
