"""Measures how long a partition, or a group, is not served: small requests, one after the other, until each
has another answer.

The requests are of the Kafka protocol and not of a client library, whose own waits between attempts would be
measured, too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.batches import Batch, records
from tests.support.wire import Closed, Silent, Wire

TOPIC: Final = "failover"
ASK_AGAIN_S: Final = 0.01
"""The time between two rounds of requests: what is measured is exact to about this."""
ANSWER_S: Final = 5.0
PATIENCE_S: Final = 120.0
_GROUPS: Final = 60
"""The names of groups of which one is coordinated by any gateway."""

Address = str


class Unserved(Exception):
    """A request got no answer, or an error."""


class Client:
    """Connections to gateways, and the requests that the measurement needs. Every method raises Unserved."""

    def __init__(self) -> None:
        self._wires: dict[Address, Wire] = {}

    def call(self, at: Address, api: str, version: int, **fields: Any) -> Any:
        try:
            if at not in self._wires:
                self._wires[at] = Wire(at, timeout_s=ANSWER_S)
            return self._wires[at].call(api, version, **fields).fields
        except (OSError, Closed, Silent) as error:
            self.forget(at)
            raise Unserved(f"{at}: {error}") from error

    def forget(self, at: Address) -> None:
        wire = self._wires.pop(at, None)
        if wire is not None:
            wire.close()

    def close(self) -> None:
        for at in list(self._wires):
            self.forget(at)

    def topics(self, at: Address, names: Sequence[str] | None = None) -> tuple[dict[int, Address], Any]:
        """Return the address of each gateway by its node id, and the topics; all topics for None."""
        asked = None if names is None else [{"name": name} for name in names]
        found = self.call(at, "metadata", 9, topics=asked, allow_auto_topic_creation=False)
        return {row["node_id"]: f"{row['host']}:{row['port']}" for row in found["brokers"]}, found["topics"]

    def leaders(self, at: Address) -> dict[int, Address]:
        """Return the address of the leader of each partition that has one."""
        nodes, topics = self.topics(at, [TOPIC])
        rows = topics[0]["partitions"]
        return {row["partition_index"]: nodes[row["leader_id"]] for row in rows if row["leader_id"] in nodes}

    def led(self, at: Address) -> Counter[Address]:
        """Return how many partitions of all topics each live gateway leads; "" is nobody."""
        nodes, topics = self.topics(at)
        led = Counter(dict.fromkeys(nodes.values(), 0))
        led.update(nodes.get(row["leader_id"], "") for topic in topics for row in topic["partitions"])
        return led

    def coordinators(self, at: Address, groups: Iterable[str]) -> dict[str, Address]:
        """Return the address of the coordinator of each group that has one."""
        found = self.call(at, "find_coordinator", 4, key_type=0, coordinator_keys=list(groups))
        return {
            row["key"]: f"{row['host']}:{row['port']}"
            for row in found["coordinators"]
            if not row["error_code"]
        }

    def write(self, at: Address, partition: int) -> None:
        """Produce one record with acks=all. Raises Unserved if it is refused."""
        batch = Batch(records(1), base_timestamp=time.time_ns() // 1_000_000).encode()
        topic = {"name": TOPIC, "partition_data": [{"index": partition, "records": batch}]}
        fields = {"transactional_id": None, "acks": -1, "timeout": 5000, "topic_data": [topic]}
        answer = self.call(at, "produce", 9, **fields)
        _check(answer["responses"][0]["partition_responses"][0]["error_code"])

    def commit(self, at: Address, group: str) -> None:
        """Commit an offset of the group. Raises Unserved if it is refused."""
        row = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1}
        topics = [{"name": TOPIC, "partitions": [row]}]
        fields = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
        answer = self.call(at, "offset_commit", 8, **fields, topics=topics)
        _check(answer["topics"][0]["partitions"][0]["error_code"])

    def group_of(self, at: Address, coordinator: Address) -> str | None:
        """Return a group that the gateway `coordinator` coordinates; None without one."""
        names = [f"group-{number}" for number in range(_GROUPS)]
        found = self.coordinators(at, names)
        return next((name for name in names if found.get(name) == coordinator), None)


def _check(error_code: int) -> None:
    if error_code:
        raise Unserved(f"error {error_code}")


@dataclass
class Times:
    """Seconds without service, of partitions and of groups."""

    partitions: list[float] = field(default_factory=list)
    groups: list[float] = field(default_factory=list)

    @property
    def longest(self) -> float:
        return max([*self.partitions, *self.groups])


@dataclass
class _Place:
    """A partition or a group: how it is used at an address, how its present address is found, and when it was
    served last.
    """

    use: Callable[[Address], None]
    find: Callable[[Address], Address | None]
    at: Address
    served_s: float = 0.0
    outage_s: float | None = None


class Outage:
    """One gateway that ends, while all that it serves is used all the time."""

    def __init__(self, client: Client, victim: Address, others: Collection[Address]) -> None:
        """Find what `victim` serves. `others` are asked where it is afterwards: the other gateways, or
        `victim` itself if it comes back.
        """
        self._client = client
        self._victim = victim
        self._others = list(others)
        asked = next((other for other in self._others if other != victim), victim)
        self._partitions = {
            index: _Place(self._writing(index), self._leader(index), victim)
            for index, at in client.leaders(asked).items()
            if at == victim
        }
        group = client.group_of(asked, victim)
        self._groups = (
            [] if group is None else [_Place(self._committing(group), self._coordinator(group), victim)]
        )

    def _writing(self, index: int) -> Callable[[Address], None]:
        return lambda at: self._client.write(at, index)

    def _committing(self, group: str) -> Callable[[Address], None]:
        return lambda at: self._client.commit(at, group)

    def _leader(self, index: int) -> Callable[[Address], Address | None]:
        return lambda at: self._client.leaders(at).get(index)

    def _coordinator(self, group: str) -> Callable[[Address], Address | None]:
        return lambda at: self._client.coordinators(at, [group]).get(group)

    @property
    def is_empty(self) -> bool:
        """Whether the victim leads nothing of the topic."""
        return not self._partitions

    def measure(self, end: Callable[[], None], *, is_clean: bool) -> Times:
        """Call `end`, which ends the victim; return for how long nothing was served. Raises Unserved after
        two minutes.

        After a kill the time begins with it. A clean stop serves on while it hands over: the time begins with
        the last answer.
        """
        places = [*self._partitions.values(), *self._groups]
        for place in places:
            self._await(place)
        for place in places:
            place.use(self._victim)
            place.served_s = time.monotonic()
        end()
        ended_s = time.monotonic()
        while pending := [place for place in places if place.outage_s is None]:
            for place in pending:
                self._try(place, None if is_clean else ended_s)
            if time.monotonic() > ended_s + PATIENCE_S:
                raise Unserved(f"{len(pending)} of {len(places)} are not served after {PATIENCE_S:.0f} s")
            time.sleep(ASK_AGAIN_S)
        times = Times()
        times.partitions += [
            place.outage_s for place in self._partitions.values() if place.outage_s is not None
        ]
        times.groups += [place.outage_s for place in self._groups if place.outage_s is not None]
        return times

    def _await(self, place: _Place) -> None:
        """Use a place until the victim serves it: a partition that it begins to lead comes from the bucket
        first.
        """
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                place.use(self._victim)
            except Unserved:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(ASK_AGAIN_S)
            else:
                return

    def _try(self, place: _Place, killed_s: float | None) -> None:
        """Use a place once where it was last, or ask where it is now."""
        try:
            place.use(place.at)
        except Unserved:
            self._find(place)
            return
        now_s = time.monotonic()
        if killed_s is not None:
            place.outage_s = now_s - killed_s
        elif place.at != self._victim:
            place.outage_s = now_s - place.served_s
        place.served_s = now_s

    def _find(self, place: _Place) -> None:
        for other in self._others:
            try:
                place.at = place.find(other) or place.at
            except Unserved:
                continue
            return


def percentile(sorted_s: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile: the smallest value that so many are not above."""
    return sorted_s[max(0, -(-int(share * 1000) * len(sorted_s) // 1000) - 1)]


def table(measured: Mapping[str, Sequence[float]]) -> str:
    """Return the distributions as a table in Markdown, in seconds."""
    lines = ["| what | measured | p50 | p90 | p99 | max |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for what, times in measured.items():
        if times:
            ordered = sorted(times)
            shares = [percentile(ordered, share) for share in (0.5, 0.9, 0.99, 1.0)]
            lines.append(
                f"| {what} | {len(ordered)} | " + " | ".join(f"{value:.2f} s" for value in shares) + " |"
            )
    return "\n".join(lines)
