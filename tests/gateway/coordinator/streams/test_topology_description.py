"""Descriptions of topologies (KIP-1331): when members are asked for one, what is stored, and for how long."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from seqgate.gateway.coordinator.group import records as codec
from seqgate.gateway.coordinator.group.classic_protocol import GroupLimits
from seqgate.gateway.coordinator.group.epoch_group import HeartbeatRefused
from seqgate.gateway.coordinator.group.events import Effects
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.streams.heartbeat import streams_heartbeat
from seqgate.gateway.coordinator.streams.records import GROUP as GROUP_ROW
from seqgate.gateway.coordinator.streams.records import ROWS, TOPOLOGY
from seqgate.gateway.coordinator.streams.topology_description import (
    DESCRIPTION,
    PROCESSOR,
    SINK,
    SOURCE,
    Asking,
    DescribedSubtopology,
    GlobalStore,
    Node,
    TopologyDescription,
    is_wanted,
)
from seqgate.gateway.handlers.groups.groups import delete_group
from seqgate.gateway.handlers.groups.streams_group import MAX_NODES, DescriptionUpdate, store_description
from tests.gateway.coordinator.streams.applications import PIPE, FakeTopics
from tests.gateway.coordinator.streams.group_scene import AT_ONCE, GROUP, asking, joining

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
SILENT = replace(AT_ONCE, session_timeout_ms=24 * HOUR_MS)


def node(name: str, node_type: int = PROCESSOR, *successors: str) -> Node:
    return Node(name, node_type, (), None, (), successors)


READS = Node("in", SOURCE, ("lines",), None, (), ("out",))
WRITES = Node("out", SINK, (), "words", (), ())
PIPES = TopologyDescription((DescribedSubtopology("0", (READS, WRITES)),), ())


class Shard:
    """The groups of one partition, and the records that their requests leave."""

    def __init__(self) -> None:
        self.limits = SILENT
        self.now_ms = 1_000
        self.records: list[object] = []
        self.shard = self._fresh()

    def _fresh(self) -> GroupShard:
        return GroupShard(
            GroupLimits(), max_groups=9, topics=FakeTopics(lines=1), streams_limits=lambda _: self.limits
        )

    def asks(self, member_epoch: int = 0, *, is_first: bool = False) -> bool:
        """Send a heartbeat; return whether it is answered with a question for the description."""
        make = joining if member_epoch == 0 else asking
        request = make("a", *(() if member_epoch == 0 else (member_epoch,)), api_version=0 if is_first else 1)
        effects = Effects(self.now_ms)
        reply = streams_heartbeat(self.shard, request, effects)
        self.records += effects.records
        return reply.wants_description

    def push(
        self, description: TopologyDescription = PIPES, *, member_id: str = "a", epoch: int = 0
    ) -> str | None:
        effects = Effects(self.now_ms)
        update = DescriptionUpdate(GROUP, member_id, epoch, description)
        complaint = store_description(self.shard, update, effects)
        self.records += effects.records
        return complaint

    def refusal(self, description: TopologyDescription = PIPES, **more: object) -> tuple[ErrorCode, str]:
        with pytest.raises(HeartbeatRefused) as refused:
            self.push(description, **more)  # type: ignore[arg-type]
        return refused.value.error_code, str(refused.value)

    def restart(self) -> None:
        self.shard = self._fresh()
        for record in self.records:
            found = codec.decode(*codec.encode(record))  # type: ignore[arg-type]
            assert found is not None
            self.shard.replay(found, self.now_ms)

    @property
    def stored(self) -> TopologyDescription | None:
        description = self.shard.streams.groups[GROUP].description
        return None if description is None else description.decoded()


@pytest.fixture
def shard() -> Shard:
    found = Shard()
    assert found.asks()
    return found


class TestAsking:
    def test_the_time_between_two_questions_doubles_up_to_an_hour(self) -> None:
        asking = Asking()
        waited = []
        now_ms = 0
        for _ in range(9):
            assert asking.ask(4, now_ms)
            assert not asking.ask(4, now_ms + asking.delay_ms - 1)
            waited.append(asking.delay_ms)
            now_ms += asking.delay_ms
        assert waited[:3] == [30_000, MINUTE_MS, 2 * MINUTE_MS]
        assert waited[-2:] == [HOUR_MS, HOUR_MS]

    def test_another_topology_is_asked_for_at_once(self) -> None:
        asking = Asking()
        assert asking.ask(0, 0)
        assert asking.ask(1, 1)
        assert asking.delay_ms == 30_000

    def test_the_time_left_stays_when_the_clock_is_set(self) -> None:
        asking = Asking()
        asking.ask(0, 0)
        asking.clock_was_set(HOUR_MS)
        assert not asking.ask(0, HOUR_MS + 29_999)
        assert asking.ask(0, HOUR_MS + 30_000)

    def test_members_are_asked_until_there_is_a_description(self, shard: Shard) -> None:
        assert not shard.asks(2)
        shard.now_ms += 30_000
        assert not shard.asks(2, is_first=True), "a client of version 0 can't be asked"
        assert shard.asks(2)
        assert shard.push() is None
        shard.now_ms += HOUR_MS
        assert not shard.asks(2)

    def test_nobody_is_asked_where_none_is_stored(self) -> None:
        shard = Shard()
        shard.limits = replace(SILENT, description_max_bytes=0)
        assert not shard.asks()


class TestStoring:
    def test_a_description_survives_a_restart(self, shard: Shard) -> None:
        shard.push()
        shard.restart()
        assert shard.stored == PIPES
        group = shard.shard.streams.groups[GROUP]
        assert group.value.stored_description_epoch == 0
        assert not shard.asks(2)

    def test_a_node_has_only_what_its_type_has(self, shard: Shard) -> None:
        full = ("t", "u", "t"), "w", ("s", "s"), ("x", "x")
        found = [Node(name, kind, *full) for name, kind in (("a", SOURCE), ("b", PROCESSOR), ("c", SINK))]
        store = GlobalStore(found[0], found[1])
        shard.push(TopologyDescription((DescribedSubtopology("0", tuple(found)),), (store,)))
        source = Node("a", SOURCE, ("t", "u"), None, (), ("x",))
        processor = Node("b", PROCESSOR, (), None, ("s",), ("x",))
        sink = Node("c", SINK, (), "w", (), ("x",))
        expected = DescribedSubtopology("0", (source, processor, sink))
        assert shard.stored == TopologyDescription((expected,), (GlobalStore(source, processor),))

    def test_a_deleted_group_leaves_no_description(self, shard: Shard) -> None:
        shard.push()
        effects = Effects(shard.now_ms)
        streams_heartbeat(shard.shard, asking("a", -1), effects)
        assert delete_group(shard.shard, GROUP, effects) is ErrorCode.none
        assert [record for record in effects.records if record.row is DESCRIPTION] == [  # type: ignore[union-attr]
            DESCRIPTION.of(GROUP, None)
        ]
        shard.records += effects.records
        shard.restart()
        assert GROUP not in shard.shard.streams.groups
        assert shard.asks()

    def test_a_group_without_a_description_has_no_record_of_it(self, shard: Shard) -> None:
        group = shard.shard.streams.groups[GROUP]
        assert DESCRIPTION.kind not in {kind for kind, _ in ROWS.stored_keys(group)}
        assert all(record.row is not DESCRIPTION for record in ROWS.deletion_records(group))
        shard.push()
        assert (DESCRIPTION.kind, "") in ROWS.stored_keys(group)
        assert group.record_of(DESCRIPTION.kind, "") == DESCRIPTION.of(GROUP, group.description)

    def test_a_description_of_another_topology_does_not_count(self, shard: Shard) -> None:
        shard.push()
        group = shard.shard.streams.groups[GROUP]
        assert not is_wanted(group)
        shard.shard.replay(TOPOLOGY.of(GROUP, PIPE._replace(epoch=1)), shard.now_ms)
        assert is_wanted(group)

    def test_the_word_of_a_broker_that_kept_it_elsewhere_does_not_count(self, shard: Shard) -> None:
        value = shard.shard.streams.groups[GROUP].value
        shard.shard.replay(GROUP_ROW.of(GROUP, value._replace(stored_description_epoch=0)), shard.now_ms)
        shard.now_ms += HOUR_MS
        assert shard.asks(2)

    def test_what_is_stored_is_what_the_wire_has(self, shard: Shard) -> None:
        shard.push()
        description = shard.shard.streams.groups[GROUP].description
        assert description is not None
        nodes = b"\3in\1\2\6lines\0\1\2\4out\0" + b"\4out\3\1\6words\1\1\0"
        assert description.data == b"\2\2" + b"0\3" + nodes + b"\0" + b"\1\0"


class TestRefusals:
    def test_a_member_and_a_topology_must_be_the_groups(self, shard: Shard) -> None:
        assert shard.refusal(member_id="x") == (
            ErrorCode.unknown_member_id,
            f"Member x is not a member of group {GROUP}.",
        )
        assert shard.refusal(epoch=3) == (
            ErrorCode.invalid_request,
            "Topology epoch 3 does not match the group's current topology epoch 0.",
        )
        shard.shard.streams.groups.clear()
        assert shard.refusal() == (ErrorCode.group_id_not_found, f"Group {GROUP} not found.")

    @pytest.mark.parametrize("node_type", [0, 4, -1])
    def test_a_node_must_be_of_a_known_type(self, shard: Shard, node_type: int) -> None:
        odd = TopologyDescription((DescribedSubtopology("0", (node("n", node_type),)),), ())
        text = f"Unknown topology node type: {node_type}"
        assert shard.refusal(odd) == (ErrorCode.invalid_request, text)

    def test_a_global_store_is_a_source_and_a_processor(self, shard: Shard) -> None:
        odd = TopologyDescription((), (GlobalStore(READS, WRITES),))
        text = "Global store must be composed of a source and a processor node."
        assert shard.refusal(odd) == (ErrorCode.invalid_request, text)

    def test_one_that_is_too_large_is_not_asked_for_again(self, shard: Shard) -> None:
        many = (DescribedSubtopology("0", (node("n"),) * (MAX_NODES + 1)),)
        complaint = shard.push(TopologyDescription(many, ()))
        assert complaint == "The topology description has 10001 nodes; at most 10000 are stored."
        shard.restart()
        assert shard.stored is None
        shard.now_ms += HOUR_MS
        assert not shard.asks(2)

    def test_one_for_which_there_is_no_memory_is_asked_for_later(self, shard: Shard) -> None:
        shard.shard.member_bytes.limit_bytes = 0
        assert shard.push() is not None
        assert shard.stored is None
        shard.now_ms += 30_000
        assert not shard.asks(2)
        shard.now_ms += 30_000
        assert shard.asks(2)
