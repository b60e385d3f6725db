"""Topics of a cluster, altered as commands and the console alter them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seqgate.gateway.admin.remote.addresses import parse_addresses
from seqgate.gateway.admin.remote.cluster import Cluster, connected
from seqgate.gateway.admin.topics import REFUSED, alter_topic, describe_topics
from seqgate.gateway.testing import Broker

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
    ask = cluster.admin.create_partitions

    def refuses(wanted: dict[str, int], *, validate_only: bool, raise_errors: bool) -> object:
        count = wanted["t"] if validate_only else 1
        return ask({"t": count}, validate_only=validate_only, raise_errors=raise_errors)

    monkeypatch.setattr(cluster.admin, "create_partitions", refuses)
    refused = alter_topic(cluster, "t", partitions=3, settings=SETTINGS, unset=())
    assert str(refused.error).startswith("the configurations are altered, the partitions are not: ")
    assert describe_topics(cluster, ["t"])[0].configs == SETTINGS
