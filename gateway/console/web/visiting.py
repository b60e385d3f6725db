"""Makes a visit of a request: who asks, what the address and the form say."""

from __future__ import annotations

import datetime as dt
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import anyio.to_thread
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from seqgate.gateway.admin.remote.addresses import shown_address
from seqgate.gateway.admin.remote.client_security import ClientSecurity
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import duration, shown
from seqgate.gateway.console.answer import PageAnswer, address, in_units
from seqgate.gateway.console.console import Console, ConsoleOptions
from seqgate.gateway.console.page import Page, PageGroup, Visit
from seqgate.gateway.console.rights import is_refused
from seqgate.gateway.console.sessions import FIELD, new_id

MOST_FORM_BYTES: Final = 8 << 20
"""The largest form with its files; a larger one is refused."""
MOST_FIELDS: Final = 2_000
"""Fields of a form, or of the query of an address; a request with more is refused."""
_NOT_WHOLE: Final = 400
_TOO_LARGE: Final = 413


class LoginNeeded(Exception):
    """The listener of the cluster needs a login, and the browser has no session."""


class FormRefused(Exception):
    """A form came without the token of its session."""


@dataclass(frozen=True, slots=True)
class SentForm:
    fields: Mapping[str, Sequence[str]] = field(default_factory=dict)
    uploads: Mapping[str, bytes] = field(default_factory=dict)


_NOTHING: Final = SentForm()


async def visit_of(console: Console, request: Request, operation: str, sent: SentForm = _NOTHING) -> Visit:
    """Return the visit of a request that needs a right to `operation`. Raises LoginNeeded, and ControlError
    when the cluster can't be asked.
    """
    visit = stranger(console, request, sent)
    login = console.sessions.login(visit.session_id)
    if login is None:
        login = await anyio.to_thread.run_sync(_open_login, console)
    path = {name: str(value) for name, value in request.path_params.items()}
    return replace(visit, security=login, path=path, uploads=sent.uploads, operation=operation)


def stranger(console: Console, request: Request, sent: SentForm = _NOTHING) -> Visit:
    """Return the visit of somebody without a login, for the login page and for errors."""
    return Visit(
        console=console,
        security=ClientSecurity(),
        session_id=session_id_of(request, console.options) or new_id(),
        address=request.client.host if request.client else "",
        query=_query(request),
        form=sent.fields,
    )


def _query(request: Request) -> Mapping[str, Sequence[str]]:
    fields: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        fields.setdefault(name, []).append(value)
    return fields


def _open_login(console: Console) -> ClientSecurity:
    """Return how visitors connect to a listener without logins. Raises LoginNeeded for one with logins."""
    if console.cluster_login.mechanisms():
        raise LoginNeeded
    return console.options.security


async def form_of(console: Console, request: Request) -> SentForm:
    """Return a form whose token and origin are right. Raises FormRefused and HTTPException."""
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
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_FORM_BYTES:
                raise HTTPException(_TOO_LARGE, f"a form must be smaller than {MOST_FORM_BYTES >> 20} MiB")
    except ClientDisconnect:  # no mistake of the program, whose log would have a traceback
        raise HTTPException(_NOT_WHOLE, "the connection ended before the form was whole") from None
    request._body = bytes(body)  # noqa: SLF001 - Starlette's own place of a body that was read


async def _sent(form: FormData) -> SentForm:
    fields: dict[str, list[str]] = {}
    uploads: dict[str, bytes] = {}
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            content = await value.read()
            if value.filename or content:
                uploads[name] = content
        else:
            fields.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return SentForm(fields, uploads)


# Numbers, sizes and times as templates show them.

UNKNOWN: Final = "–"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP: Final = 1024
_TEN: Final = 10


def count(value: float | None) -> str:
    """Return a number with thousands separators; a dash for an unknown one."""
    return UNKNOWN if value is None else f"{value:,}"


def size(value: float | None) -> str:
    """Return bytes in the unit that gives at most four digits; a dash for an unknown size."""
    if value is None or value < 0:
        return UNKNOWN
    amount, unit = float(value), 0
    while amount >= _STEP and unit < len(_UNITS) - 1:
        amount, unit = amount / _STEP, unit + 1
    number = f"{amount:.0f}" if unit == 0 or amount >= _TEN else f"{amount:.1f}"
    return f"{number} {_UNITS[unit]}"


def moment(time_ms: int | None) -> Markup | str:
    """Return a time as an element that the browser shows in its own time zone; a dash for an unknown time."""
    if time_ms is None or time_ms < 0:
        return UNKNOWN
    try:
        exact = dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
    written = exact.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return Markup('<time datetime="{}">{} UTC</time>').format(
        exact.isoformat(timespec="milliseconds").replace("+00:00", "Z"), written
    )


def ago(time_ms: int | None) -> Markup | str:
    """Return how long ago a time of the console's own clock is; its title is the time itself."""
    if time_ms is None:
        return UNKNOWN
    exact = dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC).isoformat(timespec="seconds")
    passed = duration(max(0, time.time_ns() // 1_000_000 - time_ms))
    return Markup('<time datetime="{}" data-ago>{} ago</time>').format(exact, passed)


def span(length_ms: int | None) -> str:
    """Return a length of time in its largest two units; a dash for an unknown length."""
    return UNKNOWN if length_ms is None else duration(length_ms)


def sentence(text: str) -> str:
    """Return an error as a sentence: it begins with a capital letter and ends with a full stop."""
    text = text.strip()
    begin = text.partition(" ")[0]
    if begin.islower() and begin.isalpha():
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


def segment(text: str) -> str:
    return quote(text, safe="")


FILTERS: Final = {
    "count": count,
    "size": size,
    "moment": moment,
    "ago": ago,
    "span": span,
    "segment": segment,
    "sentence": sentence,
    "is_refused": is_refused,
    "shown": shown,
    "in_units": in_units,
}


# Renders the templates.

HOME: Final = Path(__file__).resolve().parents[1]
TEMPLATES: Final = HOME / "templates"
STATIC: Final = HOME / "static"


class Renderer:
    """Renders pages with the navigation around them."""

    def __init__(self, pages: Iterable[Page]) -> None:
        """Load the templates; all values are escaped."""
        self._sections = [
            (section, [page for page in pages if page.section is section]) for section in PageGroup
        ]
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(FILTERS)
        self._environment.globals["address"] = address

    def page(
        self, template: str, values: Mapping[str, Any], visit: Visit, place: str, notice: str | None
    ) -> str:
        """Return a page as HTML. `place` is the path of the request, which the navigation marks. Templates
        call the macros of parts/page.html as `parts`.
        """
        values = {
            **values,
            "visit": visit,
            "user": visit.user,
            "csrf": visit.console.tokens.token(visit.session_id),
            "sections": [(section, pages) for section, pages in self._sections if pages],
            "place": place,
            "notice": notice,
            "has_metrics": visit.has_metrics,
            "has_figures": visit.has_figures,
            "server": visit.server,
            "bootstrap_shown": ",".join(shown_address(*each) for each in visit.console.options.bootstrap),
        }
        parts = self._environment.get_template("parts/page.html").make_module(values)
        return labelled(self._environment.get_template(template).render(values, parts=parts))


# Cells with the names of their columns. A narrow window shows each row as a card, in which each cell begins
# with the name. Templates escape all values, so that no tag is part of a value.

_TABLE: Final = re.compile(r"<table\b.*?</table>", re.DOTALL)
_HEADING: Final = re.compile(r"<th\b([^>]*)>(.*?)</th>", re.DOTALL)
_CELL: Final = re.compile(r"<t[dh]\b([^>]*)>")
_UNSEEN: Final = re.compile(r'<span class="visually-hidden">.*?</span>|<[^>]*>', re.DOTALL)


def labelled(page: str) -> str:
    """Give each cell of a page's tables the name of its column as `data-label`. A heading may name it so,
    too; a cell over several columns gets none.
    """
    return _TABLE.sub(_labelled_table, page)


def _labelled_table(table: re.Match[str]) -> str:
    labels: list[str] = []

    def heading(found: re.Match[str]) -> str:
        attributes, content = found.groups()
        if "data-label=" not in attributes:
            words = " ".join(_UNSEEN.sub(" ", content).replace('"', "&#34;").split())
            attributes += f' data-label="{words}"'
        labels.append(attributes.partition('data-label="')[2].partition('"')[0])
        return f"<th{attributes}>{content}</th>"

    head, end, body = table[0].partition("</thead>")
    first, *rows = body.split("<tr")
    head = _HEADING.sub(heading, head)
    return head + end + "<tr".join([first, *(_labelled_row(row, labels) for row in rows)])


def _labelled_row(row: str, labels: Sequence[str]) -> str:
    left = iter(labels)

    def cell(found: re.Match[str]) -> str:
        span = int(found[1].partition('colspan="')[2].partition('"')[0] or 1)
        names = list(islice(left, span))
        return found[0] if span > 1 or not names else f'{found[0][:-1]} data-label="{names[0]}">'

    return _CELL.sub(cell, row)


# Runs the functions of pages in a few threads, and remembers the ones that take long until the browser asks
# again.

THREADS: Final = 16
MOST_WAITING: Final = 64
"""Functions that run or wait for a thread; a further request is refused."""
PATIENCE_S: Final = 0.6
"""Time that a browser waits for a page before it is told what the page waits for."""
KEPT_S: Final = 10.0
"""Time for which a finished answer waits for the browser that asked, which asks again every second; then it
is too old to be shown.
"""


@dataclass(slots=True)
class Running:
    future: Future[PageAnswer]
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None

    def __post_init__(self) -> None:
        self.future.add_done_callback(self._ends)

    def _ends(self, _: Future[PageAnswer]) -> None:
        self.ended = time.monotonic()

    @property
    def is_old(self) -> bool:
        """Whether the answer has waited too long for its browser."""
        return self.ended is not None and time.monotonic() - self.ended >= KEPT_S


class Work:
    """The functions that run. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="console-page")
        self._unfinished = 0
        self._kept: OrderedDict[str, Running] = OrderedDict()

    def begin(self, function: Callable[[], PageAnswer]) -> Running:
        """Run a function in a thread. Raises ControlError when too many wait."""
        with self._lock:
            if self._unfinished >= MOST_WAITING:
                raise ControlError("the console has too much to do; try again in a few seconds")
            self._unfinished += 1
        future = self._threads.submit(function)
        future.add_done_callback(self._finished)
        return Running(future)

    def _finished(self, _: Future[PageAnswer]) -> None:
        with self._lock:
            self._unfinished -= 1

    def resume(self, key: str) -> Running | None:
        """Return, and forget, what an earlier request of the same browser for the same page has begun; None
        where that has ended too long ago.
        """
        with self._lock:
            found = self._kept.pop(key, None)
        return None if found is None or found.is_old else found

    def forget(self, session_id: str) -> None:
        """Forget what a session has begun: a change of the same person may have made it wrong."""
        with self._lock:
            for key in [key for key in self._kept if key.startswith(f"{session_id} ")]:
                del self._kept[key]

    def keep(self, key: str, running: Running) -> None:
        """Remember a function that still runs, for the next request; a key begins with the session id."""
        with self._lock:
            for old in [name for name, known in self._kept.items() if known.is_old]:
                del self._kept[old]
            self._kept[key] = running
            while len(self._kept) > MOST_WAITING:
                self._kept.popitem(last=False)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


# The session cookie.

_SHORTEST: Final = 20
_LONGEST: Final = 64


def cookie_name(options: ConsoleOptions) -> str:
    """Return the name of the cookie, with the port, because the ports of a host share cookies."""
    return f"seqgate_console_{options.listen[1]}"


def session_id_of(request: Request, options: ConsoleOptions) -> str | None:
    """Return the id in the cookie of a request; None without a cookie that the console made."""
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


# The headers of every answer: what the browser may load, and who may show the page.

_POLICY: Final = (
    "default-src 'self'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "object-src 'none'",
    "base-uri 'none'",
    "form-action 'self'",
    "frame-ancestors 'none'",
)
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": "; ".join(_POLICY),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
NOT_STORED: Final = {"Cache-Control": "no-store"}
"""The header of answers with data of the cluster: the browser keeps no copy on disk."""
