"""The traffic by topic against a model that only adds up, whatever is opened, closed, deleted or read halfway
in between.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.metrics.metric import OTHERS, PartitionTraffic, TopicTraffic

TOPICS = "abc"
MOST = 2


@dataclass
class FakeLog:
    size_bytes: int = 0


@dataclass(eq=False)
class FakePartition:
    topic: str
    appended_records: int = 0
    appended_bytes: int = 0
    fetched_bytes: int = 0
    closed: bool = False
    log: FakeLog = field(default_factory=FakeLog)


class FakePartitions:
    """Topics, each with its open partitions."""

    def __init__(self) -> None:
        self.by_name: dict[str, list[FakePartition]] = {}
        self.when_closed: list[Any] = []

    def __iter__(self) -> Any:
        for topic in list(self.by_name.values()):
            yield from topic

    def close(self, partition: FakePartition) -> None:
        partition.closed = True
        for tell in self.when_closed:
            tell(partition)


class Model:
    """Carries out steps on the partitions, and adds up what each topic has had since it was created."""

    def __init__(self) -> None:
        self.partitions = FakePartitions()
        found: Any = self.partitions
        self.traffic = TopicTraffic(found, MOST)
        self.records: Counter[str] = Counter()
        self.fetched: Counter[str] = Counter()
        self.in_all = 0
        self.last: dict[str, PartitionTraffic] = {}
        self.has_deleted = False
        for topic in TOPICS:
            for step in ("create", "open", "open", "append"):
                self.carry_out(step, topic, 5)

    def carry_out(self, step: str, topic: str, number: int) -> None:
        by_name = self.partitions.by_name
        opened = by_name.get(topic, [])
        if step == "create":
            by_name.setdefault(topic, [])
        elif step == "open" and topic in by_name:
            opened.append(FakePartition(topic))
        elif step == "close" and opened:
            self.partitions.close(opened.pop(number % len(opened)))
        elif step == "delete" and topic in by_name:
            for partition in by_name.pop(topic):
                self.partitions.close(partition)
            self.records[topic] = self.fetched[topic] = 0
            self.has_deleted = True
        elif step == "append" and opened:
            partition = opened[number % len(opened)]
            partition.appended_records += number
            partition.appended_bytes += 10 * number
            partition.fetched_bytes += 3 * number
            self.records[topic] += number
            self.fetched[topic] += 3 * number
            self.in_all += number

    def read(self, between: list[tuple[str, str, int]]) -> dict[str, PartitionTraffic]:
        """Read the traffic, with one further step in each pause."""
        steps = iter(between)
        for found in self.traffic.read():
            if found is not None:
                return found
            step = next(steps, None)
            if step is not None:
                self.carry_out(*step)
        raise AssertionError


STEP = st.tuples(
    st.sampled_from(["create", "open", "close", "delete", "append", "append", "open"]),
    st.sampled_from(TOPICS),
    st.integers(1, 9),
)
STEPS = st.lists(STEP, max_size=30)
KEEPING = STEPS.map(lambda steps: [step for step in steps if step[0] != "delete"])


@given(st.lists(st.tuples(STEPS, KEEPING), min_size=1, max_size=4))
def test_what_is_read_in_one_go(rounds: list[tuple[list[Any], list[Any]]]) -> None:
    model = Model()
    for steps, _ in rounds:
        for step in steps:
            model.carry_out(*step)
        found = model.read([])
        own = {topic: traffic for topic, traffic in found.items() if topic != OTHERS}
        assert len(own) <= MOST
        if not model.has_deleted:
            assert {topic: traffic.records for topic, traffic in own.items()} == {
                topic: model.records[topic] for topic in own
            }
            assert sum(traffic.records for traffic in found.values()) == model.in_all
            assert sum(traffic.bytes for traffic in found.values()) == 10 * model.in_all
            assert sum(traffic.fetched_bytes for traffic in found.values()) == 3 * model.in_all
        opened = sum(map(len, model.partitions.by_name.values()))
        assert sum(traffic.partitions for traffic in found.values()) == opened


def test_deleted_topics_that_nobody_has_read_leave_nothing() -> None:
    model = Model()
    for number in range(1000):
        for step in ("create", "open", "append", "delete"):
            model.carry_out(step, f"brief{number}", 5)
    assert len(model.traffic._series) + len(model.traffic._closed) == 0


def test_deleted_topics_beyond_the_limit_stay_counted_in_one_series() -> None:
    model = Model()
    assert model.read([])[OTHERS].records == 5
    for number in range(1000):
        for step in ("create", "open", "append", "delete"):
            model.carry_out(step, f"brief{number}", 5)
    assert model.read([])[OTHERS].records == 5005
    assert len(model.traffic._series) == len(TOPICS)


@given(st.lists(st.tuples(KEEPING, KEEPING), min_size=1, max_size=4))
def test_no_counter_falls_when_partitions_close_during_a_read(
    rounds: list[tuple[list[Any], list[Any]]],
) -> None:
    model = Model()
    last: dict[str, PartitionTraffic] = {}
    for steps, between in rounds:
        for step in steps:
            model.carry_out(*step)
        least = model.in_all
        found = model.read(between)
        for series, before in last.items():
            assert found[series].records >= before.records
            assert found[series].bytes >= before.bytes
            assert found[series].fetched_bytes >= before.fetched_bytes
        last = found
        assert least <= sum(traffic.records for traffic in found.values()) <= model.in_all
    assert sum(traffic.records for traffic in model.read([]).values()) == model.in_all


@given(st.lists(st.tuples(STEPS, STEPS), min_size=1, max_size=4))
def test_the_series_of_all_others_never_falls(rounds: list[tuple[list[Any], list[Any]]]) -> None:
    model = Model()
    last = 0
    for steps, between in rounds:
        for step in steps:
            model.carry_out(*step)
        found = model.read(between)
        assert found.get(OTHERS, PartitionTraffic()).records >= last
        last = found.get(OTHERS, PartitionTraffic()).records
