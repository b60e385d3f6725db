"""A streams group of up to four members and two static ones: tasks that move, members that come and go, or go
for a while, commits, offsets of tasks, descriptions of the topology, and epochs that are wrong.

Where two processes have the same load, Kafka takes the one that comes first in its hash map. The names of the
processes and of the members lie there in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tests.compat.differential.group_member import committed, fetch_offsets, fetched
from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.random.sequence import World, drawn, one_of
from tests.compat.differential.streams_member import (
    LEAVES,
    LEAVES_FOR_A_WHILE,
    ROLES,
    StreamsMember,
    describe,
    describe_nodes,
    subtopology,
    topology,
)

PROCESSES = ("p2", "p2", "p3", "p3")
STATIC_IDS = ("m5", "m6", "m7", "m8", "m9")
member = one_of(0, 0, 1, 1, 2, 3)
step = one_of(-2, -1, -1, 1, 2)
partition = one_of(0, 1, 2)


class Streams(World):
    family = "streams"
    table: ClassVar = {
        "join": (5, drawn(member)),
        "join_with_endpoint": (1, drawn(member)),
        "join_from_process": (1, drawn(member, one_of("p2", "p3"))),
        "join_with_topology": (1, drawn(member, one_of(0, 1))),
        "beat": (4, drawn(member)),
        "confirm": (12, drawn(member)),
        "confirm_less": (3, drawn(member)),
        "confirm_more": (1, drawn(member, partition)),
        "leave": (2, drawn(member)),
        "at": (3, drawn(member, step)),
        "confirm_at": (2, drawn(member, step)),
        "commit": (4, drawn(member, one_of(0, 0, 0, -1, -1, 1), one_of(0, 1), partition)),
        "commit_as_nobody": (1, drawn(one_of(0, 1), partition)),
        "join_as_static": (1, drawn(one_of(0, 1), one_of("p2", "p3"))),
        "confirm_as_static": (2, drawn(one_of(0, 1))),
        "leave_as_static": (1, drawn(one_of(0, 1), one_of(LEAVES_FOR_A_WHILE, LEAVES_FOR_A_WHILE, LEAVES))),
        "report_offset": (1, drawn(member, partition)),
        "push": (1, drawn(member, one_of(0, 0, 1))),
        "look": (2, drawn()),
        "look_at_nodes": (1, drawn()),
    }
    length = 30

    def __init__(self, peer: Peer, name: str, topics: Sequence[Topic]) -> None:
        super().__init__(peer, name, topics)
        self.group_id = peer.group()
        both = topology(*(subtopology(str(number), topic.name) for number, topic in enumerate(topics)))
        self.members = [
            StreamsMember(peer, self.group_id, both, f"m{number}", process_id)
            for number, process_id in enumerate(PROCESSES, 1)
        ]
        self.static: dict[int, StreamsMember] = {}
        self.static_ids = iter(STATIC_IDS)
        # join first: a commit would create a classic group, and Kafka then counts the endpoint epoch from 1
        self.join(0)

    def join(self, number: int) -> None:
        self.members[number].join()

    def join_with_endpoint(self, number: int) -> None:
        self.members[number].join(user_endpoint={"host": f"h{number}", "port": 7 + number})

    def join_from_process(self, number: int, process_id: str) -> None:
        self.members[number].join(process_id=process_id)

    def join_with_topology(self, number: int, epoch: int) -> None:
        """Join with the first topic only; epoch 1 is an update of the application."""
        self.members[number].join(topology=topology(subtopology("0", self.topics[0].name), epoch=epoch))

    def beat(self, number: int) -> None:
        self.members[number].beat()

    def confirm(self, number: int) -> None:
        self.members[number].confirm()

    def confirm_less(self, number: int) -> None:
        """Report all tasks except the last one of each subtopology as owned."""
        one = self.members[number]
        fewer = [{**row, "partitions": row["partitions"][:-1]} for row in one.owned.get("active_tasks", [])]
        one.confirm(active_tasks=fewer)

    def confirm_more(self, number: int, partition: int) -> None:
        """Report only one task as owned; the task may belong to another member."""
        rows = [{"subtopology_id": "1", "partitions": [partition]}]
        self.members[number].beat(**{role: [] for role in ROLES} | {"active_tasks": rows})

    def leave(self, number: int) -> None:
        self.members[number].leave()
        self.members[number].owned = {}

    def at(self, number: int, step: int) -> None:
        """Send a heartbeat at another epoch, but not one that joins or leaves."""
        one = self.members[number]
        known = one.member_epoch
        if known + step > 0:
            one.beat(member_epoch=known + step)

    def confirm_at(self, number: int, step: int) -> None:
        one = self.members[number]
        known = one.member_epoch
        if known + step > 0:
            one.confirm(member_epoch=known + step)

    def commit(self, number: int, step: int, topic: int, partition: int) -> None:
        one = self.members[number]
        self._commit(one.member_id, one.member_epoch + step, topic, partition)

    def commit_as_nobody(self, topic: int, partition: int) -> None:
        self._commit("", LEAVES, topic, partition)

    def _commit(self, member_id: str, epoch: int, topic: int, partition: int) -> None:
        self.peer.call(
            "offset_commit",
            9,
            group_id=self.group_id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=[committed(self.topics[topic], {partition: 5})],
        )

    def join_as_static(self, number: int, process_id: str) -> None:
        """Join with an instance id under a member id that nobody has had.

        Kafka does not tell a member its next tasks when another one was refused its instance id.
        """
        member_id = None if number in self.static else next(self.static_ids, None)
        if member_id is None:
            return
        one = StreamsMember(
            self.peer, self.group_id, self.members[0].topology, member_id, process_id, f"i{number}"
        )
        if not one.join()["error_code"]:
            self.static[number] = one

    def confirm_as_static(self, number: int) -> None:
        if number in self.static:
            self.static[number].confirm()

    def leave_as_static(self, number: int, member_epoch: int) -> None:
        """Leave; the member does not send a heartbeat before it joins again."""
        if number in self.static:
            self.static.pop(number).leave(member_epoch)

    def report_offset(self, number: int, partition: int) -> None:
        offsets = [{"subtopology_id": "1", "partition": partition, "offset": number}]
        self.members[number].beat(task_offsets=offsets)

    def push(self, number: int, epoch: int) -> None:
        node = {"name": f"n{number}", "node_type": 2}
        self.peer.call(
            "streams_group_topology_description_update",
            0,
            group_id=self.group_id,
            member_id=self.members[number].member_id,
            topology_epoch=epoch,
            topology_description={"subtopologies": [{"subtopology_id": "0", "nodes": [node]}]},
        )

    def look_at_nodes(self) -> None:
        describe_nodes(self.peer, self.group_id)

    def look(self) -> None:
        describe(self.peer, self.group_id)

    def finish(self) -> None:
        self.look()
        fetch_offsets(self.peer, self.group_id, [fetched(topic, 0, 1, 2) for topic in self.topics])
