"""Topics of a cluster, altered as commands and the console alter them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from seqgate.gateway.admin.remote.addresses import parse_addresses
from seqgate.gateway.admin.remote.cluster import Cluster, connected
from seqgate.gateway.admin.topics import REFUSED, alter_topic, describe_topics
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
