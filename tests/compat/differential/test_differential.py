"""Each scenario sends the same bytes to Seqgate and to Apache Kafka, whose answers must agree field by field."""

from __future__ import annotations

import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from tests.compat.differential import scenarios
from tests.compat.differential.known_differences import KNOWN_DIFFERENCES
from tests.compat.differential.peer import Transcript
from tests.compat.differential.scenario import SCENARIOS
from tests.compat.differential.verdict import expect_agreement
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_peer import KafkaPeer
from tests.tiers import in_tiers

assert scenarios.__all__

CASES = 2
"""The cases of each scenario in `make test-all`, mostly the oldest versions; the others run in `make
test-nightly`.
"""
IN_FULL = frozenset({"produce.batch", "produce.lying_header"})
"""Scenarios with all their cases in `make test-all`: what no batch may be."""
MINUTES = frozenset({"share_offsets.describe_a_partition_that_is_not_there"})
"""Scenarios of `make test-nightly`, because Kafka takes its time for the answer."""
TOKEN = uuid.uuid4().hex[:8]

# The first and last version that Apache Kafka 4.4.0 offers of each API that Seqgate answers.
VERSIONS = {
    "produce": (3, 13),
    "fetch": (4, 18),
    "list_offsets": (1, 11),
    "metadata": (0, 13),
    "api_versions": (0, 5),
    "offset_commit": (2, 10),
    "offset_fetch": (1, 10),
    "find_coordinator": (0, 6),
    "join_group": (0, 9),
    "heartbeat": (0, 4),
    "leave_group": (0, 5),
    "sync_group": (0, 5),
    "describe_groups": (0, 6),
    "list_groups": (0, 5),
    "create_topics": (2, 7),
    "delete_topics": (1, 6),
    "delete_records": (0, 2),
    "init_producer_id": (0, 5),
    "offset_for_leader_epoch": (2, 4),
    "describe_configs": (1, 4),
    "alter_configs": (0, 2),
    "describe_log_dirs": (1, 5),
    "create_partitions": (0, 3),
    "delete_groups": (0, 3),
    "incremental_alter_configs": (0, 1),
    "offset_delete": (0, 0),
    "describe_cluster": (0, 2),
    "describe_producers": (0, 0),
    "add_partitions_to_txn": (0, 5),
    "add_offsets_to_txn": (0, 4),
    "end_txn": (0, 5),
    "write_txn_markers": (1, 2),
    "describe_transactions": (0, 0),
    "list_transactions": (0, 2),
    "describe_topic_partitions": (0, 0),
    "consumer_group_heartbeat": (0, 1),
    "consumer_group_describe": (0, 1),
    "list_config_resources": (0, 1),
    "share_group_heartbeat": (1, 1),
    "share_group_describe": (1, 1),
    "streams_group_heartbeat": (0, 0),
    "streams_group_describe": (0, 0),
    "share_fetch": (1, 2),
    "share_acknowledge": (1, 2),
    "initialize_share_group_state": (0, 0),
    "read_share_group_state": (0, 0),
    "write_share_group_state": (0, 1),
    "delete_share_group_state": (0, 0),
    "read_share_group_state_summary": (0, 1),
    "describe_share_group_offsets": (0, 1),
    "alter_share_group_offsets": (0, 0),
    "delete_share_group_offsets": (0, 0),
    "describe_client_quotas": (0, 1),
    "alter_client_quotas": (0, 1),
    "describe_user_scram_credentials": (0, 0),
    "alter_user_scram_credentials": (0, 0),
    "describe_delegation_token": (1, 3),
    "describe_quorum": (0, 2),
    "elect_leaders": (0, 2),
    "alter_partition_reassignments": (0, 1),
    "list_partition_reassignments": (0, 0),
    "alter_replica_log_dirs": (1, 2),
    "update_features": (0, 2),
    "unregister_broker": (0, 0),
    "unregister_controller": (0, 0),
    "txn_offset_commit": (0, 6),
    "get_telemetry_subscriptions": (0, 0),
    "push_telemetry": (0, 0),
}


def _tiers() -> dict[str, list[str]]:
    """Divide the scenarios: the first of each theme, the further ones in the first two cases of each, and the
    rest.
    """
    themes: set[str] = set()
    cases: Counter[str] = Counter()
    divided: dict[str, list[str]] = {"test": [], "all": [], "nightly": []}
    for name in SCENARIOS:
        theme, scenario = name.partition(".")[0], name.partition("[")[0]
        cases[scenario] += 1
        is_new = theme not in themes
        themes.add(theme)
        is_rare = (cases[scenario] > CASES and scenario not in IN_FULL) or scenario in MINUTES
        divided["test" if is_new else "nightly" if is_rare else "all"].append(name)
    return divided


@cache
def _at_kafka(name: str, bootstrap: str) -> Transcript:
    return SCENARIOS[name].run(bootstrap, TOKEN)


@pytest.mark.parametrize("name", in_tiers(SCENARIOS, **_tiers()))
def test_answers_agree(name: str, kafka: KafkaPeer, shared_gateway: GatewayProcess) -> None:
    scenario = SCENARIOS[name]
    with ThreadPoolExecutor(1) as beside:
        expected = beside.submit(_at_kafka, name, kafka.bootstrap)
        seen = scenario.run(shared_gateway.bootstrap, TOKEN)
    expect_agreement(name, expected.result(), seen, KNOWN_DIFFERENCES)


def test_every_known_difference_speaks_for_a_scenario() -> None:
    idle = [entry for entry in KNOWN_DIFFERENCES if not any(entry.speaks_for(name) for name in SCENARIOS)]
    assert not idle, idle


def test_every_theme_is_there() -> None:
    themes = {name.partition(".")[0] for name in SCENARIOS}
    assert themes == set(scenarios.__all__)
    assert len({name.partition("[")[0] for name in SCENARIOS}) >= 250


@pytest.mark.tier("nightly")
def test_every_version_of_every_api_is_asked(kafka: KafkaPeer) -> None:
    asked = {
        " ".join(exchange.label.split(",")[0].split()[:2])
        for name in SCENARIOS
        for exchange in _at_kafka(name, kafka.bootstrap).exchanges
        if exchange.answer is not None
    }
    every = {
        f"{api} v{version}" for api, (first, last) in VERSIONS.items() for version in range(first, last + 1)
    }
    assert sorted(every - asked) == []
