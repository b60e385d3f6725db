"""A console inside the test's process, asked over HTTP without a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any

from starlette.testclient import TestClient

from seqgate.gateway.console.application import application
from seqgate.gateway.console.console import Console, ConsoleOptions

BASE = "http://127.0.0.1:8080"
_TITLE = re.compile(r"<h1>(.*?)</h1>", re.DOTALL)
MOST_REFRESHES = 100


class ConsoleClient:
    """Opens pages and sends forms as a browser does: with its cookie, and with the token of the page."""

    def __init__(self, client: TestClient, console: Console) -> None:
        self.http = client
        self.console = console

    def page(self, path: str, status: int = 200) -> str:
        """Return a page; wait while it says that it waits for the cluster."""
        return self._opened(self.http.get(path), status)

    def _opened(self, answer: Any, status: int) -> str:
        for _ in range(MOST_REFRESHES):
            if "refresh" not in answer.headers:
                break
            answer = self.http.get(str(answer.url))
        assert answer.status_code == status, answer.text
        text: str = answer.text
        return text

    def data(self, path: str, status: int = 200) -> Any:
        """Return the JSON of a feed."""
        answer = self.http.get(path)
        assert answer.status_code == status, answer.text
        return answer.json()

    def send(
        self,
        path: str,
        fields: Mapping[str, Any],
        *,
        status: int = 200,
        files: Mapping[str, Any] | None = None,
        token: str | None = None,
    ) -> str:
        """Send a form, follow the redirect, and return the page that comes."""
        given = {"csrf": self.token() if token is None else token, **fields}
        return self._opened(self.http.post(path, data=given, files=files), status)

    def confirmed(self, path: str, fields: Mapping[str, Any], **further: Any) -> str:
        """Send a form, check that the console asks first, and confirm."""
        asked = self.send(path, fields)
        assert 'name="confirmed" value="yes"' in asked, asked
        return self.send(path, {**fields, "confirmed": "yes", **further})

    def token(self) -> str:
        """Return the token of this browser's forms."""
        session_id = self._session_id()
        if session_id is None:
            self.http.get("/login")
            session_id = self._session_id()
        assert session_id is not None
        return self.console.tokens.token(session_id)

    def _session_id(self) -> str | None:
        found: str | None = next(
            (cookie.value for cookie in self.http.cookies.jar if cookie.name.startswith("seqgate_console")),
            None,
        )
        return found


@contextmanager
def console_client(
    bootstrap: str, *, metrics_url: str | None = None, **options: Any
) -> Iterator[ConsoleClient]:
    """Yield a client of a console for the cluster at `bootstrap`, one address or several with commas;
    `options` are those of ConsoleOptions.
    """
    addresses = [each.rpartition(":") for each in bootstrap.split(",")]
    places = tuple((host, int(port)) for host, _, port in addresses)
    urls = () if metrics_url is None else (metrics_url,)
    console = Console(ConsoleOptions(bootstrap=places, metrics_urls=urls, **options))
    with TestClient(application(console), base_url=BASE) as client:
        yield ConsoleClient(client, console)


class _Text(HTMLParser):
    """Gathers the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def text_of(page: str) -> str:
    """Return the text of a page's content, with single spaces."""
    parser = _Text()
    parser.feed(page.partition("<main")[2].partition("</main>")[0].partition(">")[2])
    return " ".join(" ".join(parser.parts).split())


def title_of(page: str) -> str:
    """Return the heading of a page."""
    found = _TITLE.search(page)
    assert found is not None, page
    return found[1]
