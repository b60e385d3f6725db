"""The reset of a group's offsets: the preview, the confirmation, and the change."""

from __future__ import annotations

import pytest

from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.console.pages.groups import parse_partitions
from tests.support.console_client import ConsoleClient, text_of
from tests.support.gateway_process import GatewayProcess
from tests.support.group_members import commit_offsets, member
from tests.system.commands.clients import create_topic, next_producer_id, produce

TOPIC = "reset-orders"
RECORDS = 10


@pytest.fixture(scope="module", autouse=True)
def records(shared_gateway: GatewayProcess) -> None:
    """Two partitions with ten records each."""
    create_topic(shared_gateway.bootstrap, TOPIC, 2)
    for partition in range(2):
        produce(
            shared_gateway.bootstrap, TOPIC, partition, next_producer_id(shared_gateway.bootstrap), 0, RECORDS
        )


def preview(console: ConsoleClient, group: str, query: str) -> str:
    return text_of(console.page(f"/groups/reset?group={group}&{query}"))


@pytest.mark.parametrize(
    ("query", "row"),
    [
        ("target=earliest", "0 4 0 4 0 0 10"),
        ("target=latest", "0 4 10 0 6 0 10"),
        ("target=offset&offset=7", "0 4 7 0 3 0 10"),
        ("target=offset&offset=99", "0 4 10 0 6 0 10 clamped to the log end"),
        ("target=shift&shift=-3", "0 4 1 3 0 0 10"),
        ("target=current", "0 4 4 0 0 0 10"),
        ("target=time&at_ms=4102444800000", "0 4 10 0 6 0 10 no record is so late"),
        ("target=time&at=1999-12-31T23:59", "0 4 0 4 0 0 10"),
        ("target=time&at=1999-12-31T23:59:00-05:00", "0 4 0 4 0 0 10"),
    ],
)
def test_the_preview_shows_each_target(
    console: ConsoleClient, shared_gateway: GatewayProcess, query: str, row: str
) -> None:
    commit_offsets(shared_gateway.bootstrap, "reset-targets", TOPIC, {0: 4})
    assert f"{TOPIC} {row}" in preview(console, "reset-targets", query)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("target=offset", "offset is empty; give a number"),
        ("target=time", "the time is empty"),
        ("target=time&at=soon", "is not a valid time"),
        ("target=shift&shift=x", "shift must be a number"),
        ("target=nowhere", "there is no target"),
        ("target=earliest&partitions=0", "partitions need a topic"),
        (f"target=earliest&topic={TOPIC}&partitions=7", "has no partition 7"),
        ("target=earliest&topic=reset-ordes", "the nearest name is reset-orders"),
    ],
)
def test_a_wrong_form_is_told(
    console: ConsoleClient, shared_gateway: GatewayProcess, query: str, sentence: str
) -> None:
    commit_offsets(shared_gateway.bootstrap, "reset-targets", TOPIC, {0: 4})
    assert sentence in preview(console, "reset-targets", query)


def test_a_reset_moves_the_named_partitions_only(
    console: ConsoleClient, shared_gateway: GatewayProcess
) -> None:
    commit_offsets(shared_gateway.bootstrap, "reset-some", TOPIC, {0: 4, 1: 4})
    fields = {"group": "reset-some", "target": "earliest", "topic": TOPIC, "partitions": "1"}
    asked = console.send("/groups/reset", fields)
    assert "The group will read 4 records again, and skip 0 records, in 1 partition." in text_of(asked)
    done = text_of(console.confirmed("/groups/reset", fields))
    assert "The offsets of group reset-some in 1 partition are committed." in done
    assert f"{TOPIC} 0 4 0 10 6" in done
    assert f"{TOPIC} 1 0 0 10 10" in done


def test_a_group_that_got_members_after_the_preview_is_left_alone(
    console: ConsoleClient, shared_gateway: GatewayProcess
) -> None:
    commit_offsets(shared_gateway.bootstrap, "reset-late", TOPIC, {0: 4})
    fields = {"group": "reset-late", "target": "latest"}
    assert "Reset the offsets of group reset-late?" in console.send("/groups/reset", fields)
    with member(shared_gateway.bootstrap, "reset-late", TOPIC):
        refused = text_of(console.send("/groups/reset", {**fields, "confirmed": "yes"}, status=400))
        assert "Nothing is changed: group reset-late is in use: state Stable; stop its consumers" in refused
        assert "Stop its consumers first" in preview(console, "reset-late", "")
    assert f"{TOPIC} 0 4 0 10 6" in text_of(console.page("/groups/view?group=reset-late"))


def test_a_wrong_token_resets_nothing(console: ConsoleClient, shared_gateway: GatewayProcess) -> None:
    commit_offsets(shared_gateway.bootstrap, "reset-guarded", TOPIC, {0: 4})
    fields = {"group": "reset-guarded", "target": "latest", "confirmed": "yes"}
    console.send("/groups/reset", fields, token="0" * 64, status=403)
    assert f"{TOPIC} 0 4 0 10 6" in text_of(console.page("/groups/view?group=reset-guarded"))


def test_a_new_group_gets_offsets(console: ConsoleClient) -> None:
    assert "does not exist yet" in preview(console, "reset-new", "")
    fields = {"group": "reset-new", "target": "latest", "topic": TOPIC}
    assert f"{TOPIC} 1 10 0 10 0" in text_of(console.confirmed("/groups/reset", fields))


def test_partitions_are_numbers_and_ranges() -> None:
    assert parse_partitions(" ") is None
    assert parse_partitions("5-7, 0,6") == [0, 5, 6, 7]
    for text in ("a", "1-", "0-999999999", "-1"):
        with pytest.raises(ControlError):
            parse_partitions(text)
