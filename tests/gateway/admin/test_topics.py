"""Topics of a cluster, altered as commands and the console alter them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka.admin import ACL, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern, ResourceType

from seqgate.gateway.admin.remote.addresses import parse_addresses
from seqgate.gateway.admin.remote.cluster import Cluster, connected
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.topics import (
    CREATED,
    REFUSED,
    TopicOutcome,
    alter_topic,
    create_topics,
    describe_topics,
)
from seqgate.gateway.testing import Broker

CREATE_PARTITIONS = 37
SETTINGS = {"retention.ms": "1"}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Broker() as broker:
        broker.create_topic("t", 2)
        with connected(parse_addresses(broker.bootstrap)) as cluster:
            yield cluster


def test_where_partitions_are_refused_no_setting_is_changed(cluster: Cluster) -> None:
    refused = alter_topic(cluster, "t", partitions=1, settings=SETTINGS, unset=())
    assert (refused.outcome, "not be an increase" in str(refused.error)) == (REFUSED, True)
    assert describe_topics(cluster, ["t"])[0].configs == {}


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_mistyped_configuration_is_not_unset(cluster: Cluster, validate_only: bool) -> None:
    alter_topic(cluster, "t", partitions=None, settings=SETTINGS, unset=())
    with pytest.raises(ControlError, match=r"^topic t has no configuration retention.mss; .* retention.ms"):
        alter_topic(
            cluster,
            "t",
            partitions=None,
            settings={"segment.ms": "1"},
            unset=["retention.mss"],
            validate_only=validate_only,
        )
    assert describe_topics(cluster, ["t"])[0].configs == SETTINGS


def test_a_late_refusal_says_what_was_changed(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    build = cluster.request

    def refused_late(api_key: int, *versions: int, **fields: Any) -> object:
        if api_key == CREATE_PARTITIONS and not fields["validate_only"]:
            fields["topics"][0]["count"] = 1
        return build(api_key, *versions, **fields)

    monkeypatch.setattr(cluster, "request", refused_late)
    refused = alter_topic(cluster, "t", partitions=3, settings=SETTINGS, unset=())
    assert str(refused.error).startswith("the configurations are altered, the partitions are not: ")
    assert describe_topics(cluster, ["t"])[0].configs == SETTINGS


def test_a_user_with_the_right_to_create_alone_waits_for_no_leaders() -> None:
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Broker(settings=authorizer) as broker:
        topic = ResourcePattern(ResourceType.TOPIC, "hidden")
        created = ACL("User:ANONYMOUS", "*", ACLOperation.CREATE, ACLPermissionType.ALLOW, topic)
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        assert not admin.create_acls([created])["failed"]
        admin.close()
        with connected(parse_addresses(broker.bootstrap)) as cluster:
            outcomes = create_topics(cluster, ["hidden"], partitions=2, replication_factor=1)
        assert outcomes == [TopicOutcome("hidden", CREATED)]
        assert broker.topics() == ["hidden"]
