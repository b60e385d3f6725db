"""One side of a differential scenario: sends its requests to one endpoint and records what came back."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.batches import Batch
from tests.support.wire import API_KEYS, TIMEOUT_S, Answer, Closed, Plain, Silent, Wire, decode, encode

SETTLE_TIMEOUT_S = 60.0
SILENCE_S = 5.0
"""Seconds without an answer that count as silence, for requests that Apache Kafka or Seqgate never answers.
"""
HANDS_OUT_PRODUCER_IDS = ("init_producer_id", "end_txn")

Records = Batch | bytes | None


class Refused(Exception):
    """The endpoint refused to create the topic that a scenario needs."""


class Unsettled(Exception):
    """An awaited event did not come within `SETTLE_TIMEOUT_S`."""


@dataclass(frozen=True)
class Exchange:
    """A request with its answer, or with a sentence that says why no answer came.

    `is_in_vain` where the endpoint did not do what the scenario waits for.
    """

    label: str
    request: Any
    answer: Plain | None = None
    instead: str | None = None
    only_own: bool = False
    is_in_vain: bool = False


@dataclass(frozen=True)
class Topic:
    name: str
    topic_id: str


@dataclass
class Transcript:
    """All exchanges of a scenario with one endpoint, and the names and ids that belong to this endpoint
    alone."""

    prefix: str
    exchanges: list[Exchange] = field(default_factory=list)
    topic_names: dict[str, str] = field(default_factory=dict)
    producer_ids: list[int] = field(default_factory=list)


def encoded(records: Records) -> bytes | None:
    """Encode a batch; bytes and None stay as they are."""
    return records.encode() if isinstance(records, Batch) else records


@dataclass(frozen=True)
class Pending:
    """A request that waits for its answer."""

    peer: Peer
    api: str
    version: int
    request: Plain
    correlation_id: int

    def is_there(self) -> bool:
        """Return whether the answer has begun to arrive."""
        return self.peer.wire.has_input()

    def answer(self) -> Plain:
        """Wait for the answer and record it."""
        return self.peer.exchange(
            f"{self.api} v{self.version}",
            self.request,
            lambda: self.peer.wire.receive(self.api, self.version, self.correlation_id),
        )


class Peer:
    """A connection that records its exchanges. `connect` opens another connection with the same transcript."""

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        transcript: Transcript | None = None,
        timeout_s: float = TIMEOUT_S,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._tls = tls
        self.transcript = transcript or Transcript(prefix)
        self._wire: Wire | None = None
        self._others: list[Peer] = []

    # --- connections

    @property
    def wire(self) -> Wire:
        if self._wire is None:
            self._wire = Wire(self.bootstrap, timeout_s=self._timeout_s, tls=self._tls)
        return self._wire

    def connect(self, *, timeout_s: float = TIMEOUT_S) -> Peer:
        other = Peer(self.bootstrap, self.transcript.prefix, self.transcript, timeout_s, tls=self._tls)
        self._others.append(other)
        return other

    def close(self) -> None:
        for other in self._others:
            other.close()
        self._disconnect()

    def stopped(self, reason: str) -> None:
        """Record why the conversation could not continue."""
        self._record(Exchange("the end", None, instead=reason, is_in_vain=True))

    def _disconnect(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    # --- exchanges that the transcript records

    def call(self, api: str, version: int, /, *, only_own: bool = False, **request: Any) -> Plain:
        """Send one request and record the answer. If no answer comes, return an empty result and reconnect.

        `only_own` leaves topics of other scenarios out of the comparison.
        """
        return self.exchange(
            f"{api} v{version}", request, lambda: self.wire.call(api, version, request), only_own=only_own
        )

    def exchange(
        self, label: str, request: Any, converse: Callable[[], Answer], *, only_own: bool = False
    ) -> Plain:
        """Record the result of `converse` under `label`."""
        try:
            answer = converse()
        except Closed:
            self._record(Exchange(label, request, instead="the connection was closed"))
        except Silent:
            self._record(Exchange(label, request, instead="no answer came"))
        else:
            fields = {**answer.fields, "trailing bytes": len(answer.trailing)}
            self._record(Exchange(label, request, answer=fields, only_own=only_own))
            return answer.fields
        self._disconnect()
        return {}

    def call_briefly(self, api: str, version: int, /, **request: Any) -> Plain:
        """Send a request to an endpoint that may never answer it; wait only briefly for the answer."""
        self._disconnect()
        self._wire = Wire(self.bootstrap, timeout_s=SILENCE_S, tls=self._tls)
        result = self.call(api, version, **request)
        self._disconnect()
        return result

    def frame(
        self,
        label: str,
        payload: bytes,
        *,
        api: str,
        version: int = 0,
        correlation_id: int = 1,
        only_own: bool = False,
    ) -> Plain:
        """Send bytes as one frame; decode the answer as `api`, `version`."""

        def converse() -> Answer:
            self.wire.send_frame(payload)
            return decode(api, version, self.wire.receive_frame(), correlation_id=correlation_id)

        return self.exchange(label, payload.hex(), converse, only_own=only_own)

    def begin(self, api: str, version: int, /, **request: Any) -> Pending:
        """Send a request whose answer is collected later, after another connection has sent something."""
        return Pending(self, api, version, request, self.wire.send(api, version, request))

    def pipelined(self, requests: Sequence[tuple[str, int, Plain]]) -> list[Plain]:
        """Send all requests before reading the first answer; the order of answers is recorded."""
        self._disconnect()
        for number, (api, version, request) in enumerate(requests, 1):
            self.wire.send_frame(encode(api, version, request, correlation_id=number))
        return [
            self.exchange(
                f"{api} v{version}, pipelined {number}",
                request,
                lambda api=api, version=version, number=number: decode(  # type: ignore[misc]
                    api, version, self.wire.receive_frame(), correlation_id=number
                ),
            )
            for number, (api, version, request) in enumerate(requests, 1)
        ]

    def without_answer(self, api: str, version: int, /, **request: Any) -> None:
        """Send a request that has no answer (Produce with acks 0), and record whether the connection stays
        open.
        """
        label = f"{api} v{version}, then api_versions"

        def converse() -> Answer:
            self.wire.send(api, version, request)
            return Answer({"alive": bool(self.wire.call("api_versions", 0).fields["api_keys"])})

        self.exchange(label, request, converse)

    def eventually(
        self,
        api: str,
        version: int,
        until: Callable[[Plain], bool],
        /,
        *,
        only_own: bool = False,
        **request: Any,
    ) -> Plain:
        """Repeat a request until `until` holds for its answer; record only the last exchange."""
        try:
            answer = self.until(api, version, until, request)
        except Unsettled as error:
            instead = f"never came: {error}"
            self._record(Exchange(f"{api} v{version}, awaited", request, instead=instead, is_in_vain=True))
            return {}
        self._record(Exchange(f"{api} v{version}, awaited", request, answer=answer, only_own=only_own))
        return answer

    def note(self, label: str, **seen: Any) -> None:
        """Record a fact that the scenario itself found."""
        self._record(Exchange(label, None, answer=seen))

    def _record(self, exchange: Exchange) -> None:
        answer = exchange.answer or {}
        if exchange.label.startswith(HANDS_OUT_PRODUCER_IDS) and answer.get("producer_id", -1) >= 0:
            self.transcript.producer_ids.append(answer["producer_id"])
        self.transcript.exchanges.append(exchange)

    # --- preparations that the transcript leaves out

    def name(self, suffix: str = "t") -> str:
        """Return a topic name that only this scenario uses."""
        return f"{self.transcript.prefix}{suffix}"

    def topic(
        self, suffix: str = "t", *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic, and wait until every partition has a leader and answers."""
        name = self.name(suffix)
        settings = [{"name": key, "value": value} for key, value in (configs or {}).items()]
        wanted = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        created = self.wire.call("create_topics", 7, topics=[wanted], timeout=10_000).fields["topics"][0]
        if created["error_code"] != 0:
            raise Refused(f"creating the topic is refused with error {created['error_code']}")
        return self.existing(suffix, partitions=partitions, topic_id=created["topic_id"])

    def existing(self, suffix: str = "t", *, partitions: int = 1, topic_id: str | None = None) -> Topic:
        """Wait until a topic of this scenario is served with this number of partitions, and not a deleted one
        of the same name but another id.
        """
        name = self.name(suffix)

        def ready(answer: Plain) -> bool:
            found = answer["topics"][0]
            if topic_id not in {None, found["topic_id"]}:
                return False
            return len(found["partitions"]) >= partitions and not any(
                partition["error_code"] for partition in found["partitions"]
            )

        asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        found = self.until("metadata", 12, ready, asked)["topics"][0]
        asked = {
            "replica_id": -1,
            "topics": [
                {
                    "name": name,
                    "partitions": [
                        {"partition_index": index, "timestamp": -1} for index in range(partitions)
                    ],
                }
            ],
        }
        self.until("list_offsets", 7, lambda answer: not _error_codes(answer), asked)
        self.transcript.topic_names[found["topic_id"]] = suffix
        return Topic(name, found["topic_id"])

    def group(self, suffix: str = "g") -> str:
        """Return a group id that only this scenario uses, once the group's coordinator answers."""
        name = self.name(suffix)
        self.until("find_coordinator", 3, lambda answer: not _error_codes(answer), {"key": name})
        self.until("describe_groups", 5, lambda answer: not _error_codes(answer), {"groups": [name]})
        return name

    def until(
        self, api: str, version: int, until: Callable[[Plain], bool], request: Plain | Callable[[], Plain]
    ) -> Plain:
        """Repeat a request until `until` accepts the answer; return that answer. Record nothing."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            asked = request() if callable(request) else request
            answer = self.wire.call(api, version, asked).fields
            if until(answer):
                return answer
            if time.monotonic() > deadline:
                raise Unsettled(f"{api} v{version} {asked} still answers {answer}")
            time.sleep(0.01)

    # --- the requests that most scenarios make

    def produce(
        self,
        topic: Topic,
        records: Records | Mapping[int, Records],
        *,
        version: int = 9,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> Plain:
        """Produce to partition 0, or to the partitions of a mapping."""
        request = produce_request(topic, records, acks=acks, transactional_id=transactional_id)
        if acks == 0:
            self.without_answer("produce", version, **request)
            return {}
        return self.call("produce", version, **request)

    def offsets(
        self, topic: Topic, *timestamps: int, version: int = 7, partition: int = 0, **more: Any
    ) -> None:
        """Send one ListOffsets request per timestamp."""
        for timestamp in timestamps:
            asked = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": -1}
            topics = [{"name": topic.name, "partitions": [asked]}]
            self.call("list_offsets", version, replica_id=-1, topics=topics, **more)

    def fetch(self, topic: Topic, offset: int = 0, *, version: int = 12, **more: Any) -> Plain:
        """Fetch from one offset of partition 0. See `fetch_request` for the options."""
        return self.call("fetch", version, **fetch_request(topic, offset, **more))

    def end_offset_reaches(self, topic: Topic, offset: int, *, partition: int = 0) -> None:
        """Wait until consumers see this log end offset, and record the answer."""
        asked = {"partition_index": partition, "timestamp": -1, "current_leader_epoch": -1}

        def reached(answer: Plain) -> bool:
            return bool(answer["topics"][0]["partitions"][0]["offset"] >= offset)

        topics = [{"name": topic.name, "partitions": [asked]}]
        self.eventually("list_offsets", 7, reached, replica_id=-1, topics=topics)


def produce_request(
    topic: Topic,
    records: Records | Mapping[int, Records],
    *,
    acks: int = -1,
    transactional_id: str | None = None,
) -> Plain:
    by_partition = records if isinstance(records, Mapping) else {0: records}
    data = [{"index": index, "records": encoded(item)} for index, item in by_partition.items()]
    topic_data = [{"name": topic.name, "topic_id": topic.topic_id, "partition_data": data}]
    return {"transactional_id": transactional_id, "acks": acks, "timeout": 5_000, "topic_data": topic_data}


def fetch_request(
    topic: Topic,
    offset: int = 0,
    *,
    partition: int = 0,
    max_wait: int = 100,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    log_start_offset: int = -1,
    **more: Any,
) -> Plain:
    """Return a Fetch request for one partition; keyword arguments replace or add fields."""
    wanted = {
        "partition": partition,
        "current_leader_epoch": current_leader_epoch,
        "fetch_offset": offset,
        "last_fetched_epoch": last_fetched_epoch,
        "log_start_offset": log_start_offset,
        "partition_max_bytes": partition_max_bytes,
    }
    request = {
        "replica_id": -1,
        "max_wait": max_wait,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation_level,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic.name, "topic_id": topic.topic_id, "partitions": [wanted]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return {**request, **more}


def _error_codes(value: Any) -> list[int]:
    if isinstance(value, dict):
        own = [value["error_code"]] if value.get("error_code") else []
        return own + [code for inner in value.values() for code in _error_codes(inner)]
    if isinstance(value, list):
        return [code for inner in value for code in _error_codes(inner)]
    return []


__all__ = [
    "API_KEYS",
    "Exchange",
    "Peer",
    "Pending",
    "Topic",
    "Transcript",
    "encoded",
    "fetch_request",
    "produce_request",
]
