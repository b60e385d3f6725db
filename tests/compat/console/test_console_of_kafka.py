"""The console shows a real Apache Kafka: groups, the cluster, settings, users, access and quotas, with what
Kafka tells.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.console_client import ConsoleClient, console_client, text_of
from tests.support.gateway_cluster import await_true
from tests.support.group_members import commit_offsets, join_share_group, member
from tests.support.kafka_peer import KafkaPeer
from tests.support.wire import Wire
from tests.system.commands.clients import create_topic, next_producer_id, produce

TOPIC = "console-orders"


@pytest.fixture(scope="module")
def console(kafka: KafkaPeer) -> Iterator[ConsoleClient]:
    create_topic(kafka.bootstrap, TOPIC, 2)
    producer_id = next_producer_id(kafka.bootstrap)
    await_true(
        lambda: produce(kafka.bootstrap, TOPIC, 0, producer_id, 0, 10) == (0, 0),
        "the partition has its leader, and ten records",
    )
    with console_client(kafka.bootstrap) as client:
        yield client


def await_shown(console: ConsoleClient, path: str, *texts: str) -> None:
    """Open a page until it has these texts: Kafka applies a change some time after it has accepted it."""

    def is_shown() -> bool:
        page = text_of(console.page(path))
        return all(text in page for text in texts)

    await_true(is_shown, f"{path} shows {texts}")


def test_groups_of_kafka(console: ConsoleClient, kafka: KafkaPeer) -> None:
    commit_offsets(kafka.bootstrap, "console-simple", TOPIC, {0: 4})
    with (
        member(kafka.bootstrap, "console-classic", TOPIC),
        member(kafka.bootstrap, "console-consumer", TOPIC, protocol="consumer"),
        Wire(kafka.bootstrap) as share,
    ):
        join_share_group(share, "console-share", TOPIC, "AAAAAAAAAAAAAAAAAAAAAQ")
        await_shown(
            console,
            "/groups?filter=console-",
            "console-classic classic Stable 1",
            "console-consumer consumer",
            "console-share share",
            f"console-simple simple Empty 0 {TOPIC} 1 6",
        )
        await_shown(console, "/groups/view?group=console-consumer", "reader")
        await_shown(console, "/groups/view?group=console-share", "wire")
    fields = {"group": "console-simple", "target": "offset", "offset": "7"}
    assert f"{TOPIC} 0 7 0 10 3" in text_of(console.confirmed("/groups/reset", fields))
    done = console.confirmed("/groups/delete", {"group": "console-simple"}, typed="console-simple")
    assert "Group console-simple is deleted." in done


def test_the_cluster_of_kafka(console: ConsoleClient, kafka: KafkaPeer) -> None:
    await_shown(console, "/cluster", f"{kafka.bootstrap} – live controller", "One node serves alone")
    assert "Drain" not in text_of(console.page("/cluster"))
    fields = {"node": "1", "name": "log.retention.ms", "filter": "log.retention.ms"}
    assert "is changed" in console.confirmed("/cluster/settings", {**fields, "value": "86400000"})
    await_shown(console, "/cluster/settings?filter=log.retention.ms", "86400000 (1 d) set for this broker")
    console.confirmed("/cluster/settings", {**fields, "unset": "yes"})


def test_access_to_kafka(console: ConsoleClient) -> None:
    assert "has no authorizer" in text_of(console.page("/access/acls"))
    fields = {
        "user": "console-carl",
        "password": "secret",
        "mechanism": "SCRAM-SHA-256",
        "iterations": "4096",
        "confirmed": "yes",
    }
    assert "User console-carl can log in" in console.send("/access/users/password", fields)
    await_shown(console, "/access/users", "console-carl")
    console.confirmed("/access/users/remove", {"user": "console-carl"}, typed="console-carl")
    quota = {"client-id-is": "named", "client-id": "console", "consumer_byte_rate": "1024"}
    console.confirmed("/access/quotas/edit", quota)
    await_shown(console, "/access/quotas", "consumer_byte_rate 1024")
    console.confirmed("/access/quotas/remove", quota)
