"""A Kafka Streams application with `group.protocol=streams` and `exactly_once_v2`: it counts exactly, whoever
is killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.groups.members import await_that
from tests.compat.groups.word_count import PARTITIONS, STREAMS, WordCount, word_count
from tests.support.gateway_process import GatewayProcess
from tests.support.group_configs import set_group_configs
from tests.support.wire import Wire

WORDS = [f"word-{number}" for number in range(23)]
WORDS_PER_LINE = 5
LINES = 400
BACKLOG_LINES = 4_000
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "group.streams.initial.rebalance.delay.ms": "300",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "10000",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "300",
}
TOPIC_RESOURCE = 2
NODE_TYPES = SOURCE, PROCESSOR, SINK = 1, 2, 3


def _lines(count: int) -> list[str]:
    return [
        " ".join(WORDS[(number * step) % len(WORDS)] for step in range(WORDS_PER_LINE))
        for number in range(count)
    ]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path / "data", settings=SETTINGS) as process:
        yield process
        assert "Traceback" not in process.stderr_text()


def _begin_backlog(application: WordCount) -> None:
    application.produce(_lines(BACKLOG_LINES))
    application.await_update()
    assert application.updates < application.expected, "this is in the middle of the work"


def _expect_exact(application: WordCount) -> None:
    application.await_all_committed()
    assert application.counts == application.expected
    assert application.updates == application.expected


def _await_standby_tasks(application: WordCount) -> None:
    """Wait until the tasks of the store stand by, each on the other instance."""

    def stand_by() -> bool:
        tasks = application.standby_tasks()
        return sum(tasks.values()) == PARTITIONS and all(tasks.values())

    await_that(stand_by, "the tasks with a store stand by")


def _cleanup_policies(gateway: GatewayProcess, *topics: str) -> list[str]:
    rows = [
        {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configuration_keys": ["cleanup.policy"]}
        for name in topics
    ]
    with Wire(gateway.bootstrap) as wire:
        results = wire.call("describe_configs", 4, resources=rows).fields["results"]
    return [row["configs"][0]["value"] for row in results]


def test_the_topology_is_described_until_the_group_is_deleted(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    """Kafka Streams pushes the description that `Topology#describe()` prints when a heartbeat asks for it."""
    with word_count(gateway.bootstrap, tmp_path, changelog="compact", protocol=STREAMS) as application:
        instance = application.start("first")
        application.await_shared(instance)
        await_that(lambda: application.described_topology() is not None, "the topology is described")
        described = application.described_topology()
        gateway.restart(kill=True)
        application.connect_anew()
        assert application.described_topology() == described
        assert described is not None
        reads, counts = described["subtopologies"]
        by_type = {
            kind: [node for part in (reads, counts) for node in part["nodes"] if node["node_type"] == kind]
            for kind in NODE_TYPES
        }
        assert [node["source_topics"] for node in by_type[SOURCE]] == [
            [application.input],
            [application.repartition],
        ]
        assert [node["sink_topic"] for node in by_type[SINK]] == [application.repartition, application.output]
        assert [node["stores"] for node in by_type[PROCESSOR] if node["stores"]] == [["counts"]]
        instance.leave()
        with Wire(gateway.bootstrap) as wire:
            await_that(
                lambda: (
                    wire.call("delete_groups", 2, groups_names=[application.application]).fields["results"][
                        0
                    ]["error_code"]
                    == 0
                ),
                "the group is deleted",
            )
        again = application.start("again")
        application.await_shared(again)
        await_that(lambda: application.described_topology() == described, "the topology is described again")


def test_a_static_member_keeps_its_tasks_over_a_restart(tmp_path: Path) -> None:
    patient = {"group.streams.max.session.timeout.ms": "600000", "group.streams.session.timeout.ms": "600000"}
    with (
        GatewayProcess(tmp_path / "data", settings=SETTINGS | patient) as gateway,
        word_count(gateway.bootstrap, tmp_path, changelog="compact", protocol=STREAMS) as application,
    ):
        first, second = application.start("first", "desk-1"), application.start("second", "desk-2")
        application.await_shared(first, second)
        before = application.active_tasks()
        first.leave()
        assert application.active_tasks() == before, "the member is away, and has its tasks"
        again = application.start("again", "desk-1")
        application.await_shared(again, second)
        assert application.active_tasks() == before


def test_counts_are_exact_whoever_is_killed(gateway: GatewayProcess, tmp_path: Path) -> None:
    with word_count(
        gateway.bootstrap, tmp_path, changelog="compact", guarantee="exactly_once_v2", protocol=STREAMS
    ) as application:
        set_group_configs(gateway.bootstrap, application.application, {"streams.num.standby.replicas": "1"})
        first, second = application.start("first"), application.start("second")
        application.await_shared(first, second)
        assert _cleanup_policies(gateway, application.repartition, application.changelog) == [
            "delete",
            "compact",
        ]
        _await_standby_tasks(application)
        _begin_backlog(application)
        gateway.restart(kill=True)
        application.connect_anew()
        application.produce(_lines(LINES))
        application.await_every_word()
        application.await_shared(first, second)
        _begin_backlog(application)
        first.kill()
        application.produce(_lines(LINES))
        application.await_every_word()
        application.await_shared(second)
        again = application.start("again")
        application.produce(_lines(LINES))
        application.await_shared(again, second)
        second.leave()
        application.produce(_lines(LINES))
        application.await_every_word()
        application.await_shared(again)
        again.leave()
        _expect_exact(application)
