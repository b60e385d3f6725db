"""A gateway with short rebalances, and a new group for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.groups.members import Members, members_of
from tests.compat.topics import fresh_topic
from tests.support.gateway_process import GatewayProcess

SETTINGS = {"group.initial.rebalance.delay.ms": "300", "group.min.session.timeout.ms": "1000"}
PARTITIONS = 4


@pytest.fixture(scope="session")
def group_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("groups") / "data", settings=SETTINGS) as process:
        yield process


@pytest.fixture
def members(group_gateway: GatewayProcess, tmp_path: Path) -> Iterator[Members]:
    """Members of one group that reads a topic with PARTITIONS partitions."""
    topic = fresh_topic(group_gateway.bootstrap, "groups", partitions=PARTITIONS)
    with members_of(group_gateway.bootstrap, topic, PARTITIONS, tmp_path) as started:
        yield started
