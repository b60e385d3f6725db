"""What people see of producers and transactions, and abort, with the rights of their users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seqgate.gateway.console.metrics.history import LAG, key_of
from tests.support.console_client import ConsoleClient, console_client, text_of
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.group_members import commit_offsets
from tests.support.producing import begun, open_transaction, send
from tests.system.commands.conftest import seqgate

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayProcess, str]]:
    """A gateway, and the address of its listener with logins: ann is a super user, bob has no rights."""
    folder: Path = tmp_path_factory.mktemp("guarded")
    for user in ("ann", "bob"):
        stdin = PASSWORD.encode()
        seqgate("users", "add", user, "--password-file", "-", "--data-dir", folder / "data", stdin=stdin)
    port = free_port()
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ann;User:ANONYMOUS",
        "seqgate.metrics.listener": f"127.0.0.1:{free_port()}",
    }
    also_listen = (f"LOGIN://127.0.0.1:{port}",)
    with GatewayProcess(folder / "data", settings=settings, also_listen=also_listen) as gateway:
        seqgate("topics", "create", "secrets", "--bootstrap", gateway.bootstrap)
        yield gateway, f"127.0.0.1:{port}"


@pytest.fixture
def console(guarded: tuple[GatewayProcess, str]) -> Iterator[ConsoleClient]:
    gateway, login = guarded
    with console_client(
        login, metrics_url=f"http://{gateway.settings['seqgate.metrics.listener']}"
    ) as client:
        yield client


def log_in(console: ConsoleClient, user: str) -> None:
    console.send("/login", {"username": user, "password": PASSWORD, "to": "/topics"})


def test_the_history_of_a_group_needs_the_right_to_see_it(
    console: ConsoleClient, guarded: tuple[GatewayProcess, str]
) -> None:
    """Without a login of its own the console samples what the metrics tell, which shows every group."""
    gateway, _ = guarded
    commit_offsets(gateway.bootstrap, "payers", "secrets", {0: 0})
    while key_of(LAG, {"group": "payers"}) not in console.console.sampler.history:
        console.console.sampler.sample()
    log_in(console, "bob")
    feed = "/api/groups/lag?group=payers"
    assert "no group payers that you may describe" in console.data(feed, status=400)["error"]
    log_in(console, "ann")
    assert console.data(feed)["series"]["lag"]
    assert "The lag comes from the gateway's metrics" in text_of(console.page("/groups/view?group=payers"))


def test_an_abort_needs_the_rights_of_the_person(
    console: ConsoleClient, guarded: tuple[GatewayProcess, str]
) -> None:
    gateway, _ = guarded
    producer_id, epoch = open_transaction(gateway.bootstrap, "payments", "secrets", 0)
    fields = {"id": "payments", "confirmed": "yes", "typed": "payments"}
    log_in(console, "bob")
    assert "payments" not in text_of(console.page("/transactions"))
    refused = text_of(console.send("/transactions/abort", fields, status=400))
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in refused
    sent = send(gateway.bootstrap, "secrets", producer_id, 1, epoch=epoch, transactional_id="payments")
    assert sent[0] == 0
    log_in(console, "ann")
    assert "payments" in text_of(console.page("/transactions"))
    done = console.confirmed("/transactions/abort", {"id": "payments"}, typed="payments")
    assert "The transaction of payments is aborted in 1 partition" in text_of(done)


def test_gateways_and_their_listeners_tell_nothing_to_people_without_rights(
    console: ConsoleClient, guarded: tuple[GatewayProcess, str]
) -> None:
    gateway, _ = guarded
    producer_id, _ = begun(gateway.bootstrap, None)
    send(gateway.bootstrap, "secrets", producer_id, 0)
    send(gateway.bootstrap, "secrets", producer_id, 0)
    log_in(console, "bob")
    for path in ("/producers", "/producer-ids", "/names", "/backlog?topic=secrets"):
        text = text_of(console.page(path))
        assert "duplicate" not in text.replace("duplicate: a diamond", "")
        assert "node-1" not in text
    assert "lacks the right to describe the cluster" in text_of(console.page("/producer-ids"))
    assert "lacks the right" in console.data("/api/verdicts", status=400)["error"]
    log_in(console, "ann")
    assert "it was stored before" in text_of(console.page("/producers?topic=secrets"))
