"""Configurations that are not told: those that a user may not read, and the values of secret ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka.admin import ACL, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern, ResourceType

from seqgate.gateway.admin import topics
from seqgate.gateway.admin.configs import Resource, check_known, find_configs
from seqgate.gateway.admin.remote.addresses import parse_addresses
from seqgate.gateway.admin.remote.cluster import Cluster, connected
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import Block
from seqgate.gateway.testing import Broker

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
SECRET, OPEN = "secret", "open"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Broker(settings=AUTHORIZER) as broker:
        for name in (SECRET, OPEN):
            broker.create_topic(name, configs={"retention.ms": "3600000"})
        topic = ResourcePattern(ResourceType.TOPIC, SECRET)
        described = ACL("User:ANONYMOUS", "*", ACLOperation.DESCRIBE, ACLPermissionType.ALLOW, topic)
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        assert not admin.create_acls([described])["failed"]
        admin.close()
        with connected(parse_addresses(broker.bootstrap)) as reached:
            yield reached


def test_the_configurations_of_a_topic(cluster: Cluster) -> None:
    secret, opened = topics.describe_topics(cluster, [SECRET, OPEN])
    assert (secret.configs, opened.configs) == (None, {"retention.ms": "3600000"})
    lines: list[Block] = list(topics._descriptions_text([secret, opened]))
    assert [line for line in lines if str(line).startswith("Set on the topic")] == [
        "Set on the topic: not known, because DescribeConfigs on it may be missing.",
        "Set on the topic: retention.ms=3600000.",
    ]
    resource = Resource("topic", SECRET)
    with pytest.raises(ControlError, match=f"the configurations of topic {SECRET} can't be read"):
        find_configs(cluster, resource, [], everything=False)
    assert not check_known(cluster, resource, ["any"])


def test_the_values_that_nobody_is_told(cluster: Cluster) -> None:
    of_one = "listener.name.internal.ssl.key.password"
    names = ["ssl.key.password", of_one, "log.retention.ms"]
    assert check_known(cluster, Resource("broker", "1"), names) == {"ssl.key.password", of_one}
    assert check_known(cluster, Resource("broker", "default"), names) == {"ssl.key.password", of_one}
