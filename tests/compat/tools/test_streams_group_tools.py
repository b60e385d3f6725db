"""`kafka-streams-groups` prints the same for Seqgate and for Apache Kafka: list, describe, reset, delete."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.compat.differential.group_member import committed
from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.scenarios.consumer_groups import assignable_topic
from tests.compat.differential.streams_member import StreamsMember, beside, internal, subtopology, topology
from tests.support.batches import Batch, records
from tests.support.gateway_process import GatewayProcess
from tests.support.group_members import describe_topology
from tests.support.kafka_peer import KafkaPeer
from tests.support.kafka_tools import run_tool

PARTITIONS = 2
COUNT = 10
COMMITTED = 4
DESCRIBED = ("--members", "--state", "--offsets")


class Application:
    """A streams group with two members and a store, at one cluster. Names are the same at all clusters."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap = bootstrap
        self._peer = Peer(bootstrap, prefix)
        self.topic = assignable_topic(self._peer, "input", partitions=PARTITIONS)
        self.group = self._peer.group()
        self.changelog = f"{self.group}-store-changelog"
        part = subtopology("0", self.topic.name, changelogs=[internal(self.changelog)])
        self._first = StreamsMember(self._peer, self.group, topology(part))
        self._second = beside(self._first)

    def close(self) -> None:
        self._peer.close()

    def run(self) -> None:
        """Join with both members, and commit offsets."""
        batch = Batch(records(COUNT))
        self._peer.produce(self.topic, dict.fromkeys(range(PARTITIONS), batch), version=9)
        self._first.await_tasks(PARTITIONS, **self._first.full())
        self._second.join()
        self._first.confirm()
        self._first.confirm()
        self._second.confirm()
        self._second.confirm()
        self._commit(self.topic)

    def describe_topology(self) -> None:
        """Push the description of the topology, as Kafka Streams 4.4 does."""
        describe_topology(self._peer.wire, self.group, self.topic.name, self._first.member_id)

    def _commit(self, topic: Topic) -> None:
        member = self._first
        answer = self._peer.call(
            "offset_commit",
            9,
            group_id=self.group,
            generation_id_or_member_epoch=member.member_epoch,
            member_id=member.member_id,
            topics=[committed(topic, dict.fromkeys(range(PARTITIONS), COMMITTED))],
        )
        assert answer["topics"][0]["partitions"][0]["error_code"] == 0, answer

    def stop(self) -> None:
        self._first.leave()
        self._second.leave()

    def tool(self, *arguments: str) -> list[list[str]]:
        """Run the tool; return the words of the printed lines, without the lines of other groups.

        The lines are sorted: the tool prints members and partitions in the order of a hash map.
        """
        done = run_tool("kafka-streams-groups", "--bootstrap-server", self.bootstrap, *arguments)
        text = (done.stdout + done.stderr).replace(self.bootstrap, "BOOTSTRAP")
        lines = [line.split() for line in text.splitlines()]
        lists_all = "--list" in arguments
        return sorted(line for line in lines if line and (not lists_all or self.group in line[0]))

    def topics(self) -> set[str]:
        found = self._peer.wire.call("metadata", 12, topics=None).fields["topics"]
        return {row["name"] for row in found}


class Both:
    """The same application at Seqgate and at Apache Kafka."""

    def __init__(self, seqgate: Application, kafka: Application) -> None:
        self.applications = seqgate, kafka
        self.group, self.topic = seqgate.group, seqgate.topic.name

    def agree(self, *arguments: str) -> list[list[str]]:
        """Run the tool at both; return what both print."""
        with ThreadPoolExecutor(len(self.applications)) as beside_each_other:
            seqgate, kafka = beside_each_other.map(lambda one: one.tool(*arguments), self.applications)
        assert seqgate == kafka
        return seqgate


@pytest.fixture
def both(shared_gateway: GatewayProcess, kafka: KafkaPeer) -> Iterator[Both]:
    prefix = f"tool-{uuid.uuid4().hex[:8]}-"
    applications = [Application(end.bootstrap, prefix) for end in (shared_gateway, kafka)]
    for application in applications:
        application.run()
    yield Both(*applications)
    for application in applications:
        application.close()


def _words(lines: list[list[str]]) -> set[str]:
    return {word for line in lines for word in line}


def test_the_life_of_a_group(both: Both) -> None:
    group = ("--group", both.group)
    assert both.agree("--list", "--state") == [[both.group, "Stable"]]
    for what in DESCRIBED:
        told = _words(both.agree("--describe", *group, what, "--verbose"))
        assert both.group in told
    assert "description" in _words(both.agree("--describe", *group, "--topology")), "there is none"
    for application in both.applications:
        application.describe_topology()
    assert {"READS", "COUNTS"} <= _words(both.agree("--describe", *group, "--topology"))
    refused = both.agree("--delete", *group)
    assert both.group in " ".join(_words(refused))
    for application in both.applications:
        application.stop()
    reset = ("--reset-offsets", *group, "--input-topic", both.topic)
    assert "0" in _words(both.agree(*reset, "--to-earliest", "--dry-run"))
    assert "7" in _words(both.agree(*reset, "--to-offset", "7", "--execute"))
    both.agree("--delete-offsets", *group, "--input-topic", both.topic)
    both.agree("--delete", *group, "--delete-all-internal-topics")
    for application in both.applications:
        assert application.topic.name in application.topics()
        assert application.changelog not in application.topics()
