"""The connections of the console to the cluster, and what it says while there is none."""

from __future__ import annotations

import re
import socket
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import NoReturn

import pytest

from seqgate.gateway.admin.remote.client_security import OPEN
from seqgate.gateway.admin.request import ControlError, Unreachable
from seqgate.gateway.console.asking import connections
from seqgate.gateway.console.asking.connections import ClusterLogin
from tests.support.console_client import ConsoleClient, console_client, text_of
from tests.support.gateway_process import GatewayProcess
from tests.system.commands.conftest import seqgate

AWAY = re.compile(r"did not answer|nothing answers at", re.IGNORECASE)
"""Which sentence a page has depends on whether the console noticed the end of its connection before it asked.
"""


def is_away(console: ConsoleClient, path: str) -> bool:
    return AWAY.search(text_of(console.page(path))) is not None


def test_pages_work_again_after_a_restart_of_the_gateway(gateway: GatewayProcess) -> None:
    seqgate("topics", "create", "kept", "--bootstrap", gateway.bootstrap)
    with console_client(gateway.bootstrap) as console:
        assert "retention.ms" in text_of(console.page("/topics/kept/settings"))
        gateway.stop()
        assert is_away(console, "/topics/kept/settings")
        assert is_away(console, "/")
        gateway.start()
        assert "retention.ms" in text_of(console.page("/topics/kept/settings"))
        console.confirmed("/topics/kept/partitions", {"partitions": "2"})
        assert "Nothing is wrong" in text_of(console.page("/"))


def test_a_cluster_that_is_not_there_is_told_with_what_to_do() -> None:
    with console_client("127.0.0.1:1") as console:
        for path in ("/", "/topics", "/records/orders", "/login"):
            assert "start a gateway there" in text_of(console.page(path))
        assert "start a gateway there" in console.data("/api/figures", status=400)["error"]


def test_a_refused_login_stays_refused_where_the_next_mechanism_gets_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = iter([ControlError("refuses the login of ann"), Unreachable("nothing answers")])

    def fail(*_: object) -> NoReturn:
        raise next(errors)

    monkeypatch.setattr(connections, "first_that_answers", fail)
    with ThreadPoolExecutor() as pool:
        login = ClusterLogin([("127.0.0.1", 1)], OPEN, pool)
        monkeypatch.setattr(login, "mechanisms", lambda: ("SCRAM-SHA-256", "PLAIN"))
        with pytest.raises(ControlError, match="refuses"):
            login.log_in("ann", "wrong")


@pytest.mark.parametrize("listens", [True, False])
def test_a_login_without_an_answer_is_one_where_the_cluster_accepts_connections(
    monkeypatch: pytest.MonkeyPatch, *, listens: bool
) -> None:
    """Otherwise guesses would not count where refusals come late."""

    def time_out(connection: socket.socket, _: object) -> NoReturn:
        connection.close()
        raise TimeoutError

    monkeypatch.setattr(connections, "begin_session", time_out)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:
        port = server.getsockname()[1]
        if not listens:
            server.close()
        login = ClusterLogin([("127.0.0.1", port)], OPEN, pool)
        monkeypatch.setattr(login, "mechanisms", lambda: ("PLAIN",))
        with pytest.raises(ControlError, match="nothing answers") as raised:
            login.log_in("ann", "wrong")
    assert isinstance(raised.value, Unreachable) is not listens


def test_a_listener_that_hangs_up_may_have_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy without a backend hangs up, and so does a broker with its last connection taken."""
    answering: set[int] = set()

    def exchange(connection: socket.socket, _: object) -> SimpleNamespace:
        if connection.getpeername()[1] not in answering:
            raise ConnectionResetError
        return SimpleNamespace(mechanisms=("PLAIN", "OAUTHBEARER"))

    monkeypatch.setattr(connections, "exchange", exchange)
    monkeypatch.setattr(connections, "KEPT_S", 0.0)
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("127.0.0.1", 0)) as second,
        ThreadPoolExecutor() as pool,
    ):
        addresses = [each.getsockname()[:2] for each in (first, second)]
        login = ClusterLogin(addresses, OPEN, pool)
        with pytest.raises(Unreachable, match="nothing answers"):
            login.mechanisms()
        answering.add(addresses[1][1])
        assert login.mechanisms() == ("PLAIN",)
        answering.clear()
        assert login.mechanisms() == ("PLAIN",)
