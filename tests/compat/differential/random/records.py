"""Idempotent and plain batches, deleted records, and fetches in and out of sessions.

Where Kafka lets a batch overtake a refused one, the endpoints differ, and then in all that is stored. So only
`pipeline` sends such a batch, to a topic of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from tests.compat.differential.peer import Peer, Topic, fetch_request, produce_request
from tests.compat.differential.random.sequence import World, drawn, one_of
from tests.compat.differential.transactional import describe_producers
from tests.models.refusals import Awaited
from tests.support.batches import Batch, read_batches, records
from tests.support.wire import Plain

partition = one_of(0, 1)
producer = one_of(-1, 0, 1)
CODECS = ("none", "none", "gzip", "snappy", "lz4", "zstd")
WRONG: dict[str, Plain] = {
    "base offset": {"base_offset": 5},
    "magic": {"magic": 3},
    "old magic": {"magic": 1},
    "crc": {"crc": 7},
    "control": {"attributes": 0x20},
    "append time": {"attributes": 0x08},
    "append time without": {"attributes": 0x08, "base_timestamp": -1},
    "no timestamp": {"base_timestamp": -1},
    "no sequence": {"base_sequence": -1},
    "transactional": {"attributes": 0x10},
    "far ahead": {"base_timestamp": 2**50},
}

CORRUPT, TOO_LARGE = 2, 10
SENT_AGAIN = {CORRUPT, TOO_LARGE}
"""The codes of these sequences after which clients send a batch again."""
FIRST: dict[str, Plain] = {
    "crc": {"crc": 7},
    "too large": {"records": records(200)},
    "far ahead": {"base_timestamp": 2**50},
    "right": {},
}
"""What the first batch of a pipeline has at its first attempt."""


def _row(answer: Plain) -> Plain:
    row: Plain = answer["responses"][0]["partition_responses"][0] if answer else {"error_code": -1}
    return row


class Produce(World):
    family = "produce"
    table: ClassVar = {
        "produce": (12, drawn(partition, producer, one_of(0, 0, 0, 1), one_of(1, 2, 5), one_of(*CODECS))),
        "at": (4, drawn(partition, one_of(0, 1), one_of(0, 1, 2), one_of(-3, -2, -1, 1, 2, 7))),
        "retry": (4, drawn(one_of(0, 1, 2, 5, 6))),
        "wrong": (3, drawn(partition, producer, one_of(*WRONG))),
        "pair": (2, drawn(producer, one_of("", "", *WRONG))),
        "two_batches": (1, drawn(partition, producer)),
        "pipeline": (1, drawn(one_of(*FIRST), one_of(0, 0, 9), one_of(1, 2, 5), one_of(2, 3, 5))),
        "delete": (1, drawn(partition, one_of(0, 1, 3, -1, 99))),
        "offsets": (3, drawn(partition, one_of(-1, -2, -3, 0, 2**50))),
        "fetch": (3, drawn(partition, one_of(0, 1, 4, 99))),
        "describe": (1, drawn()),
    }
    length = 30

    def __init__(self, peer: Peer, name: str, topics: Sequence[Topic]) -> None:
        super().__init__(peer, name, topics)
        self.topic = peer.topic(partitions=2)
        self.next: dict[tuple[int, int, int], int] = {}
        self.sent: list[tuple[int, Batch]] = []
        self.awaited: defaultdict[tuple[int, int], Awaited] = defaultdict(Awaited)
        self.unreadable: set[int] = set()
        """The partitions that refused a batch for its checksum, and have stored none since."""
        self.pipelines = 0

    def _batch(self, index: int, number: int, epoch: int, count: int = 1, codec: str = "none") -> Batch:
        batch = Batch(records(count), codec=codec)
        if number < 0:
            return batch
        return batch.of(1_000_000 + number, epoch, self.next.get((index, number, epoch), 0))

    def _overtakes(self, index: int, batch: Batch) -> bool:
        """Return whether the batch comes before an earlier one that was refused, perhaps of its producer:
        Kafka stores it, or calls it out of order.
        """
        awaited = self.awaited[index, batch.producer_id]
        may_be_its_own = index in self.unreadable and batch.base_sequence > 0
        return may_be_its_own or awaited.holds_back(batch.producer_epoch, batch.base_sequence)

    def _note(self, index: int, batch: Batch, code: int) -> None:
        if code == 0:
            self.awaited[index, batch.producer_id].stored(batch.producer_epoch, batch.base_sequence)
            self.unreadable.discard(index)
        elif code in SENT_AGAIN and batch.producer_id >= 0 and batch.base_sequence >= 0:
            self.awaited[index, batch.producer_id].refused(batch.producer_epoch, batch.base_sequence)
        if code == CORRUPT:
            self.unreadable.add(index)

    def _send(self, index: int, batch: Batch, *, counts: int = 0) -> None:
        if self._overtakes(index, batch):
            return
        answer = self.peer.produce(self.topic, {index: batch})
        self.sent.append((index, batch))
        row = _row(answer)
        self._note(index, batch, row["error_code"])
        if counts and not row["error_code"] and batch.producer_id >= 0:
            key = index, batch.producer_id - 1_000_000, batch.producer_epoch
            self.next[key] = batch.base_sequence + counts

    def produce(self, index: int, number: int, epoch: int, count: int, codec: str) -> None:
        self._send(index, self._batch(index, number, epoch, count, codec), counts=count)

    def at(self, index: int, number: int, epoch: int, delta: int) -> None:
        batch = self._batch(index, number, epoch)
        self._send(index, replace(batch, base_sequence=batch.base_sequence + delta))

    def retry(self, back: int) -> None:
        if len(self.sent) > back:
            self._send(*self.sent[-1 - back])

    def wrong(self, index: int, number: int, kind: str) -> None:
        self._send(index, replace(self._batch(index, number, 0), **WRONG[kind]))

    def pair(self, number: int, kind: str) -> None:
        """Send a request for both partitions, perhaps with a wrong batch for the second."""
        other = replace(self._batch(1, number, 0), **WRONG.get(kind, {}))
        batches = {0: self._batch(0, number, 0), 1: other}
        if any(self._overtakes(index, batch) for index, batch in batches.items()):
            return
        answer = self.peer.produce(self.topic, batches, version=9)
        for row in answer["responses"][0]["partition_responses"] if answer else ():
            self._note(row["index"], batches[row["index"]], row["error_code"])

    def two_batches(self, index: int, number: int) -> None:
        batch = self._batch(index, number, 0)
        self.peer.produce(self.topic, {index: batch.encode() + batch.encode()})

    def pipeline(self, first: str, base_sequence: int, count: int, batches: int) -> None:
        """Send a new producer's batches at once, the first one wrong; then each refused one again, in order.

        Another connection sends them. The transcript gets their codes, and whether all are stored in order.
        """
        self.pipelines += 1
        topic = self.peer.topic(f"pipeline-{self.pipelines}", configs={"max.message.bytes": "1000"})
        sequences = [base_sequence + count * number for number in range(batches)]
        right = [Batch(records(count)).of(1_000_009, 0, sequence) for sequence in sequences]
        attempts = [replace(right[0], **FIRST[first]), *right[1:]]
        beside = Peer(self.peer.bootstrap, self.peer.transcript.prefix)
        try:
            requests = [("produce", 9, produce_request(topic, batch)) for batch in attempts]
            codes = [_row(answer)["error_code"] for answer in beside.pipelined(requests)]
            for batch, code in zip(right, codes, strict=True):
                if code:
                    beside.produce(topic, batch)
            fetched = beside.fetch(topic)["responses"][0]["partitions"][0]["records"]
        finally:
            beside.close()
        stored = [view.base_sequence for view in read_batches(fetched)[0]]
        fate = "sent again" if codes[0] in SENT_AGAIN else "given up"
        seen = {f"behind one {fate}": codes[1:], f"in order with one {fate}": stored == sequences}
        self.peer.note("pipeline", first=codes[0], **seen)

    def delete(self, index: int, offset: int) -> None:
        wanted = [{"name": self.topic.name, "partitions": [{"partition_index": index, "offset": offset}]}]
        self.peer.call("delete_records", 2, topics=wanted, timeout=5_000)

    def offsets(self, index: int, timestamp: int) -> None:
        self.peer.offsets(self.topic, timestamp, partition=index)

    def fetch(self, index: int, offset: int) -> None:
        self.peer.fetch(self.topic, offset, partition=index, max_wait=0)

    def describe(self) -> None:
        describe_producers(self.peer, self.topic, 0, 1)

    def finish(self) -> None:
        self.describe()
        for index in (0, 1):
            for timestamp in (-1, -2):
                self.offsets(index, timestamp)
            self.fetch(index, 0)


class Fetch(World):
    family = "fetch"
    table: ClassVar = {
        "produce": (4, drawn(partition, one_of(1, 3))),
        "begin": (3, drawn(one_of(12, 17), one_of((0,), (1,), (0, 1), (0, 9)), one_of(0, 0, 2, 50))),
        "next": (
            10,
            drawn(one_of((), (), (0,), (1,), (0, 1)), one_of(0, 1, 4, 50), one_of((), (), (0,), (1,))),
        ),
        "wrong_epoch": (1, drawn(one_of(-1, 0, 3, 9))),
        "whole": (4, drawn(partition, one_of(0, 1, 3, 50), one_of(1, 80, 1 << 20), one_of(4, 11, 12, 17))),
        "delete": (1, drawn(partition, one_of(1, 2))),
    }
    length = 24

    def __init__(self, peer: Peer, name: str, topics: Sequence[Topic]) -> None:
        super().__init__(peer, name, topics)
        self.topic = peer.topic(partitions=2)
        self.version, self.session_id, self.epoch = 12, 0, 0

    def produce(self, index: int, count: int) -> None:
        self.peer.produce(self.topic, {index: Batch(records(count))})

    def _ask(self, places: Sequence[int], offset: int, epoch: int, forgotten: Sequence[int] = ()) -> Plain:
        rows = [
            {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20} for index in places
        ]
        named = {"topic": self.topic.name, "topic_id": self.topic.topic_id}
        topics = [{**named, "partitions": rows}] if rows else []
        gone = [{**named, "partitions": list(forgotten)}] if forgotten else []
        more = {"session_id": self.session_id, "session_epoch": epoch, "max_wait": 0}
        request = fetch_request(self.topic, topics=topics, forgotten_topics_data=gone, **more)
        return self.peer.call("fetch", self.version, **request)

    def begin(self, version: int, places: Sequence[int], offset: int) -> None:
        self.version, self.session_id = version, 0
        answer = self._ask(places, offset, 0)
        self.session_id, self.epoch = answer.get("session_id", 0), 1

    def next(self, places: Sequence[int], offset: int, forgotten: Sequence[int]) -> None:
        if self.session_id:
            answer = self._ask(places, offset, self.epoch, forgotten)
            self.epoch += 1
            self.session_id = answer.get("session_id", 0)

    def wrong_epoch(self, epoch: int) -> None:
        if self.session_id and epoch != self.epoch:
            self._ask((0,), 0, epoch)
            if epoch <= 0:
                self.session_id = 0

    def whole(self, index: int, offset: int, max_bytes: int, version: int) -> None:
        limits = {"max_bytes": max_bytes, "partition_max_bytes": max_bytes}
        request = fetch_request(self.topic, offset, partition=index, max_wait=0, **limits)  # type: ignore[arg-type]
        self.peer.call("fetch", version, **request)

    def delete(self, index: int, offset: int) -> None:
        wanted = [{"name": self.topic.name, "partitions": [{"partition_index": index, "offset": offset}]}]
        self.peer.call("delete_records", 2, topics=wanted, timeout=5_000)

    def finish(self) -> None:
        for index in (0, 1):
            self.whole(index, 0, 1 << 20, 12)
