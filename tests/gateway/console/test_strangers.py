"""The console keeps strangers out: other hosts, other sites, other people's paths."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from starlette.datastructures import ImmutableMultiDict

from seqgate.gateway.console import sessions
from seqgate.gateway.console.sessions import FAILURES, FAILURES_OF_ALL, WINDOW_S, LoginLimit
from seqgate.gateway.console.web.login import Hosts, _own_path
from seqgate.gateway.console.web.visiting import MOST_FIELDS
from tests.support.console_client import ConsoleClient


def test_every_answer_has_the_security_headers(console: ConsoleClient) -> None:
    for path in ("/", "/topics", "/no-such-page", "/static/console.js", "/api/figures"):
        headers = console.http.get(path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe-inline" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_pages_have_no_inline_script_or_style(console: ConsoleClient) -> None:
    for path in ("/", "/topics", "/login"):
        page = console.page(path)
        assert "<style" not in page
        assert " style=" not in page
        assert " onclick=" not in page
        assert "<script>" not in page


def test_a_foreign_host_name_is_refused(console: ConsoleClient) -> None:
    assert console.http.get("/", headers={"host": "evil.example"}).status_code == 421
    assert console.http.get("/", headers={"host": "localhost:8080"}).status_code == 200


@pytest.mark.parametrize(
    ("listen", "names", "header", "accepted"),
    [
        ("127.0.0.1", (), "[::1]:8080", True),
        ("127.0.0.1", (), "127.0.0.1.evil.example", False),
        ("127.0.0.1", ("Console.example",), "console.example:443", True),
        ("0.0.0.0", (), "anything.example", True),
        ("0.0.0.0", ("console.example",), "anything.example", False),
        ("127.0.0.1", (), "", False),
    ],
)
def test_host_headers(listen: str, names: tuple[str, ...], header: str, accepted: bool) -> None:
    assert Hosts(listen, names).accepts(header) is accepted


def test_a_form_without_its_token_is_refused(console: ConsoleClient) -> None:
    console.page("/login")
    for token in ("", "0" * 64):
        console.send("/login", {}, token=token, status=403)


def test_a_form_from_another_site_is_refused(console: ConsoleClient) -> None:
    answer = console.http.post(
        "/login", data={"csrf": console.token()}, headers={"sec-fetch-site": "cross-site"}
    )
    assert answer.status_code == 403


def test_a_form_that_is_too_large_is_refused(console: ConsoleClient) -> None:
    answer = console.http.post("/login", data={"csrf": console.token(), "name": "x" * (9 << 20)})
    assert answer.status_code == 413


def test_an_address_with_many_fields_is_read_once_and_one_with_more_is_refused(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reaches the console sends it, and all browsers wait while the console reads it."""
    fields = [f"f{number}" for number in range(MOST_FIELDS)]
    monkeypatch.delattr(ImmutableMultiDict, "getlist")  # searches all fields, for each name
    assert console.http.get("/no-such-page?" + "&".join(fields)).status_code == 404
    refused = console.http.get("/no-such-page?" + "&".join([*fields, "one-more"]))
    assert refused.status_code == 414
    assert "nosniff" in refused.headers["x-content-type-options"]


@pytest.mark.parametrize(
    "path", ["/static/../console.py", "/static/%2e%2e/console.py", "/static/..%2fpages/topics.py"]
)
def test_no_file_but_the_assets_is_served(console: ConsoleClient, path: str) -> None:
    assert console.http.get(path).status_code == 404


@pytest.mark.parametrize(
    ("path", "safe"),
    [
        ("/topics?filter=a", "/topics?filter=a"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("/a\r\nSet-Cookie: x", "/"),
        ("", "/"),
    ],
)
def test_a_login_leads_to_no_other_site(path: str, safe: str) -> None:
    assert _own_path(path) == safe


def test_failed_logins_must_wait() -> None:
    limit = LoginLimit()
    for _ in range(FAILURES):
        assert limit.begin("ann", "10.0.0.1") == 0
    assert limit.begin("ann", "10.0.0.2") > 0
    assert limit.begin("bob", "10.0.0.1") > 0
    assert limit.begin("bob", "10.0.0.2") == 0
    limit.take_back("ann", "10.0.0.1")
    assert limit.begin("ann", "10.0.0.2") == 0


def test_failed_logins_are_forgotten_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(sessions, "time", SimpleNamespace(monotonic=lambda: now))
    limit = LoginLimit()
    for number in range(FAILURES_OF_ALL):
        assert limit.begin("x" * 1_000_000 + str(number), f"10.0.0.{number}") == 0
    assert limit.begin("ann", "10.0.1.1") == WINDOW_S
    assert sum(map(len, limit._failures)) < 100 * len(limit._failures)
    now = WINDOW_S
    assert limit.begin("ann", "10.0.1.1") == 0
    assert len(limit._failures) == 3
