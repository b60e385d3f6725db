"""What a person may not do is refused by the gateway, told as a sentence, and stands in the gateway's audit
log.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from seqgate.gateway.console.metrics.history import LAG, TOPIC_LAG, key_of
from tests.support.console_client import ConsoleClient, console_client, text_of
from tests.support.gateway_cluster import await_true
from tests.support.group_members import commit_offsets
from tests.support.guarded_gateway import PASSWORD, Guarded, guarded_gateway
from tests.system.commands.clients import create_topic
from tests.system.commands.conftest import seqgate


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A gateway where `bob` may see the group `desk` and the topic `orders`, and change nothing."""
    with guarded_gateway(tmp_path_factory.mktemp("guarded")) as gateway:
        place = gateway.process.bootstrap
        create_topic(place, "orders", 1)
        commit_offsets(place, "desk", "orders", {0: 0})
        commit_offsets(place, "hidden", "orders", {0: 0})
        allow = ("acls", "add", "--allow-principal", "User:bob", "--bootstrap", place)
        seqgate(*allow, "--operation", "describe", "--group", "desk")
        seqgate(*allow, "--operation", "describe", "--topic", "orders")
        seqgate(*allow, "--operation", "describe", "--cluster")
        seqgate(*allow, "--operation", "describe-configs", "--cluster")
        yield gateway


@pytest.fixture(scope="module")
def as_bob(guarded: Guarded) -> Iterator[ConsoleClient]:
    with console_client(guarded.login) as client:
        client.send("/login", {"username": "bob", "password": PASSWORD, "to": "/topics"})
        yield client


def test_a_group_that_bob_may_not_describe_hides_no_other(as_bob: ConsoleClient) -> None:
    page = text_of(as_bob.page("/groups"))
    assert "desk simple Empty 0 orders 1 0" in page
    assert "hidden simple Empty – – – –" in page
    assert "orders 0 0" in text_of(as_bob.page("/groups/view?group=desk"))
    assert "GROUP_AUTHORIZATION_FAILED" in text_of(as_bob.page("/groups/view?group=hidden"))


def test_bob_sees_no_lag_in_a_topic_that_he_may_not_describe(as_bob: ConsoleClient) -> None:
    """The console samples the lag as a user who may describe more."""
    history = as_bob.console.sampler.history
    lags = {key_of(TOPIC_LAG, {"group": "desk", "topic": name}): 7.0 for name in ("orders", "secrets")}
    history.add(time.time_ns() // 1_000_000, {key_of(LAG, {"group": "desk"}): 14.0, **lags})
    series = as_bob.data("/api/groups/lag?group=desk&topic=secrets&topic=orders")["series"]
    assert series["topic:orders"][-1] == 7.0
    assert "topic:secrets" not in series


@pytest.mark.parametrize(
    ("path", "fields", "error", "request_name"),
    [
        ("/groups/reset", {"group": "desk", "target": "latest"}, "AUTHORIZATION_FAILED", "OffsetCommit"),
        ("/groups/delete", {"group": "desk", "typed": "desk"}, "AUTHORIZATION_FAILED", "DeleteGroups"),
        (
            "/cluster/settings",
            {"node": "1", "name": "log.retention.ms", "value": "1000"},
            "AUTHORIZATION_FAILED",
            "IncrementalAlterConfigs",
        ),
        (
            "/access/quotas/edit",
            {"user-is": "default", "producer_byte_rate": "1"},
            "AUTHORIZATION_FAILED",
            "AlterClientQuotas",
        ),
        (
            "/access/users/remove",
            {"user": "ann", "typed": "ann"},
            "AUTHORIZATION_FAILED",
            "AlterUserScramCredentials",
        ),
    ],
)
def test_bob_changes_nothing(
    as_bob: ConsoleClient, guarded: Guarded, path: str, fields: dict[str, str], error: str, request_name: str
) -> None:
    page = as_bob.send(path, {**fields, "confirmed": "yes"}, status=400)
    assert error in text_of(page)

    def is_audited() -> bool:
        refused = [row for row in guarded.audited() if row.get("principal") == "User:bob"]
        return any(row.get("request") == request_name for row in refused)

    await_true(is_audited, f"the audit log has the refused {request_name}")


def test_bob_sees_the_cluster(as_bob: ConsoleClient) -> None:
    assert "One node serves alone" in text_of(as_bob.page("/cluster"))
