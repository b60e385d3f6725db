"""The entries that options stand for are those of kafka-acls."""

from __future__ import annotations

import pytest

from seqgate.gateway.admin.acls import (
    Actions,
    Holders,
    WrongOptions,
    entries,
    filter_of,
    filters,
    parse_operation,
    unsupported_operation,
)
from seqgate.gateway.security.acls.access import AclFilter, Operation, PatternType, ResourceType

TOPIC, GROUP, TX = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
ALICE = Holders(allowed=["User:alice"])


def texts(*resources: tuple[ResourceType, str], actions: Actions, holders: Holders = ALICE) -> list[str]:
    return [str(entry) for entry in entries(resources, PatternType.LITERAL, holders, actions)]


@pytest.mark.parametrize(
    ("text", "operation"),
    [
        ("Read", Operation.READ),
        ("describeconfigs", Operation.DESCRIBE_CONFIGS),
        ("Describe-Configs", Operation.DESCRIBE_CONFIGS),
        ("IDEMPOTENT_WRITE", Operation.IDEMPOTENT_WRITE),
        ("all", Operation.ALL),
    ],
)
def test_operations_are_written_in_any_way(text: str, operation: Operation) -> None:
    assert parse_operation(text) is operation


@pytest.mark.parametrize("text", ["any", "unknown", "", "fly"])
def test_there_are_no_other_operations(text: str) -> None:
    with pytest.raises(WrongOptions, match="there is no operation"):
        parse_operation(text)


def test_a_transactional_producer() -> None:
    assert texts((TOPIC, "t"), (TX, "tx"), actions=Actions(producer=True)) == [
        "User:alice may WRITE topic t from *",
        "User:alice may DESCRIBE topic t from *",
        "User:alice may CREATE topic t from *",
        "User:alice may WRITE transactional id tx from *",
        "User:alice may DESCRIBE transactional id tx from *",
    ]


def test_what_a_producer_and_a_consumer_share_is_added_once() -> None:
    both = texts((TOPIC, "t"), (GROUP, "g"), actions=Actions(producer=True, consumer=True))
    assert sorted(both) == sorted(set(both))
    assert len(both) == 5


def test_an_idempotent_producer_needs_a_right_on_the_cluster() -> None:
    assert texts(actions=Actions(idempotent=True)) == [
        "User:alice may IDEMPOTENT_WRITE cluster kafka-cluster from *"
    ]


def test_operations_of_an_idempotent_producer_are_those_on_the_named_resources() -> None:
    both = Actions(["all"], idempotent=True)
    assert texts((TOPIC, "t"), actions=both) == [
        "User:alice may ALL topic t from *",
        "User:alice may IDEMPOTENT_WRITE cluster kafka-cluster from *",
    ]
    with pytest.raises(WrongOptions, match="name a resource"):
        texts(actions=both)


def test_a_resource_has_the_operations_that_kafka_has_for_it() -> None:
    def unsupported(*operations: str) -> str | None:
        resources = [(ResourceType.CLUSTER, "kafka-cluster"), (TOPIC, "t")]
        return unsupported_operation(entries(resources, PatternType.LITERAL, ALICE, Actions(operations)))

    assert unsupported("all", "create", "alter-configs") is None
    told = unsupported("all", "idempotent-write")
    assert str(told).startswith("topic t has no operation IDEMPOTENT_WRITE; choose from ALL, READ, ")
    assert str(unsupported("read")).startswith("cluster kafka-cluster has no operation READ; ")


def test_the_cluster_has_no_prefixes() -> None:
    (entry,) = entries(
        [(ResourceType.CLUSTER, "kafka-cluster")], PatternType.PREFIXED, ALICE, Actions(["alter"])
    )
    assert entry.pattern_type is PatternType.LITERAL


def test_each_principal_has_the_hosts_of_its_kind() -> None:
    holders = Holders(["User:a", "User:b"], ["User:*"], ["192.0.2.1", "192.0.2.2"])
    assert texts((TOPIC, "t"), actions=Actions(["read"]), holders=holders) == [
        "User:a may READ topic t from 192.0.2.1",
        "User:a may READ topic t from 192.0.2.2",
        "User:b may READ topic t from 192.0.2.1",
        "User:b may READ topic t from 192.0.2.2",
        "User:* may not READ topic t from *",
    ]


def test_filters() -> None:
    assert filters([], PatternType.ANY, "User:a") == [AclFilter(principal="User:a")]
    assert filters([(TOPIC, "t"), (GROUP, "g")], PatternType.MATCH, None) == [
        AclFilter(TOPIC, "t", PatternType.MATCH),
        AclFilter(GROUP, "g", PatternType.MATCH),
    ]
    (entry,) = entries([(TOPIC, "t")], PatternType.PREFIXED, ALICE, Actions(["read"]))
    assert filter_of(entry).matches(entry)
    assert not filter_of(entry).matches(entry._replace(pattern_type=PatternType.LITERAL))
