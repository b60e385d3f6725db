"""`seqgate groups describe` of a streams group."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from kio.schema.streams_group_describe.v0 import response as described
from kio.schema.types import GroupId
from kio.static.constants import EntityType

from seqgate.gateway.admin.groups.describing import GroupDescription, description_text
from seqgate.gateway.admin.groups.members import StreamsState, StreamsTasks, TopologyNode, streams_members
from seqgate.gateway.admin.printing import print_blocks
from tests.support.wire import Plain, build, entity

RESPONSE = entity("streams_group_describe", 1, EntityType.response)


def tasks(**partitions: list[int]) -> list[Plain]:
    return [
        {"subtopology_id": name.removeprefix("s"), "partitions": rows} for name, rows in partitions.items()
    ]


def assignment(active: list[Plain], standby: list[Plain]) -> Plain:
    return {"active_tasks": active, "standby_tasks": standby, "warmup_tasks": []}


def member(**more: Any) -> Plain:
    return {
        "member_id": "m1",
        "member_epoch": 4,
        "instance_id": None,
        "client_id": "counts-1",
        "client_host": "/10.0.0.7",
        "topology_epoch": 2,
        "process_id": "p1",
        "assignment": assignment(tasks(s0=[1, 0], s1=[0]), tasks(s1=[1])),
        "target_assignment": assignment(tasks(s0=[0], s1=[0]), tasks(s1=[1])),
        **more,
    }


def group(**more: Any) -> described.DescribedGroup:
    repartition = {"name": "words-repartition", "partitions": 2}
    subtopologies = [
        {"subtopology_id": "0", "source_topics": ["lines"]},
        {"subtopology_id": "1", "repartition_source_topics": [repartition]},
    ]
    row = {
        "group_id": "counts",
        "group_state": "Reconciling",
        "group_epoch": 5,
        "assignment_epoch": 5,
        "topology": {"epoch": 2, "subtopologies": subtopologies},
        "members": [member()],
        **more,
    }
    built: described.DescribedGroup = build(RESPONSE, {"groups": [row]}).groups[0]
    return built


def printed(found: described.DescribedGroup, capsys: pytest.CaptureFixture[str]) -> str:
    told = streams_members(found)
    print_blocks(
        description_text(
            GroupDescription(
                group=str(GroupId(found.group_id)),
                state=found.group_state,
                type="streams",
                generation_id=told.group_epoch,
                protocol_type="streams",
                protocol_name=None,
                members=told.members,
                partitions=[],
                complete=True,
                streams=told.streams,
                topology=list(told.topology),
            )
        )
    )
    return capsys.readouterr().out


def test_members_with_their_tasks() -> None:
    told = streams_members(group())
    assert told.group_epoch == 5
    assert told.streams == StreamsState(assignment_epoch=5, topology_epoch=2)
    (one,) = told.members
    assert (one.member_id, one.client_id, one.client_host) == ("m1", "counts-1", "/10.0.0.7")
    assert one.assignment == {"lines": [0, 1], "words-repartition": [0]}
    assert one.streams is not None
    assert (one.streams.process_id, one.streams.member_epoch, one.streams.topology_epoch) == ("p1", 4, 2)
    assert one.streams.tasks == StreamsTasks({"0": [0, 1], "1": [0]}, {"1": [1]}, {})
    assert one.streams.target == StreamsTasks({"0": [0], "1": [0]}, {"1": [1]}, {})


@pytest.mark.parametrize("topology", [None, {"epoch": 3, "subtopologies": None}])
def test_a_topology_that_is_not_ready_has_no_partitions(topology: Plain | None) -> None:
    told = streams_members(group(topology=topology))
    assert told.streams is not None
    assert told.streams.topology_epoch == (None if topology is None else 3)
    assert told.members[0].assignment == {}


SOURCE = {
    "name": "KSTREAM-SOURCE-0",
    "node_type": 1,
    "source_topics": ["lines", "more"],
    "successors": ["COUNT-1"],
}
COUNT = {"name": "COUNT-1", "node_type": 2, "stores": ["counts"], "successors": ["SINK-2", "SINK-3"]}
SINK = {"name": "SINK-2", "node_type": 3, "sink_topic": "words"}


def test_a_topology_with_its_description(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    description = {
        "subtopologies": [
            {"subtopology_id": "0", "nodes": [SOURCE, COUNT, SINK, {**SINK, "sink_topic": None}]}
        ],
        "global_stores": [{"source": SOURCE, "processor": COUNT}],
    }
    found = group(topology_description=description)
    source = TopologyNode("0", "KSTREAM-SOURCE-0", "source", ["lines", "more"], [], ["COUNT-1"])
    count = TopologyNode("0", "COUNT-1", "processor", [], ["counts"], ["SINK-2", "SINK-3"])
    assert streams_members(found).topology == [
        source,
        count,
        TopologyNode("0", "SINK-2", "sink", ["words"], [], []),
        TopologyNode("0", "SINK-2", "sink", [], [], []),
        msgspec.structs.replace(source, subtopology=None),
        msgspec.structs.replace(count, subtopology=None),
    ]
    monkeypatch.setenv("COLUMNS", "200")
    lines = [line.split() for line in printed(found, capsys).splitlines()]
    assert ["subtopology", "node", "type", "topics", "stores", "next"] in lines
    assert ["0", "COUNT-1", "processor", "-", "counts", "SINK-2,", "SINK-3"] in lines
    assert ["global", "KSTREAM-SOURCE-0", "source", "lines,", "more", "-", "COUNT-1"] in lines


def test_a_topology_without_a_description(capsys: pytest.CaptureFixture[str]) -> None:
    assert "subtopology" not in printed(group(), capsys)


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(group(), capsys)
    assert (
        "Group counts (streams): Reconciling, 1 member, group epoch 5, assignment epoch 5, topology epoch 2"
        in text
    )
    row = next(line for line in text.splitlines() if line.startswith("m1"))
    assert row.split() == [
        "m1",
        "-",
        "counts-1",
        "/10.0.0.7",
        "p1",
        "4",
        "2",
        "0",
        "0-1;",
        "1",
        "0",
        "1",
        "1",
        "-",
    ]
    assert "Tasks are moving from or to m1" in text


def test_no_note_when_nothing_moves(capsys: pytest.CaptureFixture[str]) -> None:
    settled = assignment(tasks(s0=[0]), [])
    text = printed(
        group(group_state="Stable", members=[member(assignment=settled, target_assignment=settled)]), capsys
    )
    assert "moving" not in text
