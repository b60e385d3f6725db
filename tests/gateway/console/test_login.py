"""People log in as users of the gateway, and see and change what these users may."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, NoReturn

import msgspec
import pytest

from seqgate.gateway.admin.client import ask
from seqgate.gateway.admin.request import ControlError, Unreachable
from seqgate.gateway.admin.status import StatusRequest
from seqgate.gateway.console.asking.connections import ClusterLogin
from seqgate.gateway.console.command import exposure_complaint
from seqgate.gateway.console.console import ConsoleOptions
from seqgate.gateway.console.sessions import FAILURES
from tests.support.console_client import ConsoleClient, console_client, text_of, title_of
from tests.support.gateway_cluster import await_true
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.metrics_stub import metrics_stub
from tests.system.commands.conftest import seqgate

PASSWORD = "correct horse"


class Guarded(NamedTuple):
    """The address of a listener with logins, and its gateway."""

    bootstrap: str
    gateway: GatewayProcess


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A gateway with a listener with logins."""
    folder = tmp_path_factory.mktemp("guarded")
    for user in ("ann", "bob"):
        seqgate(
            "users",
            "add",
            user,
            "--password-file",
            "-",
            "--data-dir",
            folder / "data",
            stdin=PASSWORD.encode(),
        )
    port = free_port()
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ann;User:ANONYMOUS",
    }
    with GatewayProcess(
        folder / "data", settings=settings, also_listen=(f"LOGIN://127.0.0.1:{port}",)
    ) as gateway:
        seqgate("topics", "create", "secrets", "--bootstrap", gateway.bootstrap)
        yield Guarded(f"127.0.0.1:{port}", gateway)


@pytest.fixture
def console(guarded: Guarded) -> Iterator[ConsoleClient]:
    with console_client(guarded.bootstrap) as client:
        yield client


def log_in(console: ConsoleClient, user: str, password: str = PASSWORD, *, status: int = 200) -> str:
    return console.send("/login", {"username": user, "password": password, "to": "/topics"}, status=status)


def test_a_stranger_comes_to_the_login_and_then_to_the_page(console: ConsoleClient) -> None:
    page = console.page("/topics?filter=secrets")
    assert title_of(page) == "Log in"
    assert 'name="to" value="/topics?filter=secrets"' in page
    before = console.token()
    assert title_of(log_in(console, "ann")) == "Topics"
    await_true(lambda: "secrets" in text_of(console.page("/topics?filter=secrets")), "the list of topics")
    assert console.token() != before, "the session id changes with the login"


def test_a_feed_says_that_a_login_is_needed(console: ConsoleClient) -> None:
    assert "log in" in console.data("/api/figures", status=401)["error"]


def test_a_wrong_password_is_refused_and_then_slowed_down(console: ConsoleClient) -> None:
    for _ in range(5):
        assert "ann" in text_of(log_in(console, "ann", "wrong", status=403))
    assert "too many failed logins" in log_in(console, "ann", "wrong", status=429)
    assert "too many failed logins" in log_in(console, "ann", status=429)


def test_logins_at_the_same_time_count_together(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses: list[int] = []

    def refuse(username: str, password: str) -> NoReturn:
        fields = {"csrf": console.token(), "username": username, "password": password}
        statuses.append(console.http.post("/login", data=fields).status_code)
        raise ControlError("refused")

    monkeypatch.setattr(console.console.cluster_login, "log_in", refuse)
    log_in(console, "ann", "wrong", status=403)
    assert statuses == [429, 403, 403, 403, 403]


def test_a_cluster_that_does_not_answer_is_no_failed_login(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_away(_username: str, _password: str) -> NoReturn:
        raise Unreachable("nothing answers")

    with monkeypatch.context() as away:
        away.setattr(console.console.cluster_login, "log_in", is_away)
        for _ in range(FAILURES + 1):
            assert "nothing answers" in log_in(console, "ann", status=403)
    assert title_of(log_in(console, "ann")) == "Topics"


def test_people_see_what_their_user_may_see(console: ConsoleClient) -> None:
    assert "There are no topics yet" in log_in(console, "bob")


def test_changes_are_the_users_own_and_in_the_audit_log(console: ConsoleClient, guarded: Guarded) -> None:
    log_in(console, "bob")
    refused = text_of(console.send("/create-topic", {"name": "of-bob"}, status=400))
    assert "TOPIC_AUTHORIZATION_FAILED" in refused
    console.send("/logout", {})
    log_in(console, "ann")
    console.confirmed("/create-topic", {"name": "of-ann"})
    log = guarded.gateway.stderr_text()
    assert re.search(r"of-ann.*User:ann|User:ann.*of-ann", log)


def test_what_only_the_gateway_knows_needs_the_right_to_describe_the_cluster(guarded: Guarded) -> None:
    with metrics_stub() as stub, console_client(guarded.bootstrap, metrics_url=stub.url) as console:
        stub.views["status"] = msgspec.to_builtins(ask(guarded.gateway.data_dir, StatusRequest()))
        log_in(console, "bob")
        assert "lacks the right to describe the cluster" in text_of(console.page("/"))
        console.send("/logout", {})
        log_in(console, "ann")
        assert "Up for" in text_of(console.page("/"))


def test_after_logging_out_the_session_is_over(console: ConsoleClient) -> None:
    log_in(console, "ann")
    kept = dict(console.http.cookies)
    assert title_of(console.send("/logout", {})) == "Log in"
    console.http.cookies.update(kept)
    assert title_of(console.page("/topics")) == "Log in"


def test_the_cookie_is_hidden_from_scripts_and_other_sites(console: ConsoleClient) -> None:
    cookie = console.http.get("/login").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie


def test_beyond_this_machine_a_console_needs_logins(guarded: Guarded, shared_gateway: GatewayProcess) -> None:
    def complaint(bootstrap: str, *, insecure: bool = False) -> str | None:
        host, _, port = bootstrap.partition(":")
        addresses = ((host, int(port)),)
        options = ConsoleOptions(bootstrap=addresses, listen=("0.0.0.0", 8080), is_insecure=insecure)
        with ThreadPoolExecutor() as pool:
            return exposure_complaint(options, ClusterLogin(addresses, options.security, pool))

    assert complaint(guarded.bootstrap) is None
    assert "has no logins" in (complaint(shared_gateway.bootstrap) or "")
    assert complaint(shared_gateway.bootstrap, insecure=True) is None
    assert "can't find out" in (complaint("127.0.0.1:1") or "")
