"""Requests to a gateway of any release, in versions that all releases have."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.support.batches import Batch
from tests.support.wire import API_KEYS, Plain, Wire
from tests.upgrade.manifest import Row, row

DEADLINE_S = 120.0
TOPIC, BROKER = 2, 4
NOT_READY = {14, 15, 16, 51}
"""Errors after which a client retries: the coordinator is loading or not available yet, or a transaction is
ending.
"""
SHARE_MEMBER = base64.urlsafe_b64encode(bytes([7]) * 16).decode().rstrip("=")


def place(topic: str, index: int = 0) -> str:
    """Return the manifest's name of a partition."""
    return f"{topic}/{index}"


def split_place(text: str) -> tuple[str, int]:
    """Return the topic and the index in the manifest's name of a partition."""
    topic, _, index = text.rpartition("/")
    return topic, int(index)


class Asking:
    """One connection to a gateway."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.wire = Wire(bootstrap)

    def close(self) -> None:
        self.wire.close()

    def call(self, api: str, version: int, request: Plain) -> Plain:
        return self.wire.call(api, version, request).fields

    def until(self, ask: Callable[[], Plain], holds: Callable[[Plain], bool]) -> Plain:
        """Repeat a request until its answer holds; return that answer."""
        deadline_s = time.monotonic() + DEADLINE_S
        while not holds(answer := ask()):
            assert time.monotonic() < deadline_s, f"still answered: {answer}"
        return answer

    def coordinator(self, key: str, key_type: int = 0) -> None:
        """Wait until the coordinator of a group (0), transactional id (1) or share state (2) answers."""
        asked = {"key": key, "key_type": key_type}
        self.until(
            lambda: self.call("find_coordinator", 3, asked),
            lambda answer: answer["error_code"] not in NOT_READY,
        )

    def has(self, api: str) -> bool:
        """Return whether the release has an API."""
        answer = self.call("api_versions", 0, {})
        return API_KEYS[api] in {entry["api_key"] for entry in answer["api_keys"]}

    # --- topics

    def create(self, topic: str, partitions: int = 1, **configs: str) -> int:
        """Create a topic; return the error code. Keyword arguments are configs, with `_` for `.`."""
        asked = {
            "name": topic,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": name.replace("_", "."), "value": text} for name, text in configs.items()],
        }
        answer = self.call("create_topics", 5, {"topics": [asked], "timeout": 10_000, "validate_only": False})
        return int(answer["topics"][0]["error_code"])

    def topic_ids(self) -> dict[str, str]:
        asked = {
            "topics": None,
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        answer = self.call("metadata", 12, asked)
        return {topic["name"]: topic["topic_id"] for topic in answer["topics"] if not topic["is_internal"]}

    def alter(self, resource_type: int, name: str, **configs: str) -> None:
        entries = [
            {"name": config.replace("_", "."), "config_operation": 0, "value": text}
            for config, text in configs.items()
        ]
        resource = {"resource_type": resource_type, "resource_name": name, "configs": entries}
        answer = self.call("incremental_alter_configs", 1, {"resources": [resource], "validate_only": False})
        assert answer["responses"][0]["error_code"] == 0, answer

    def configs(self, resource_type: int, name: str) -> dict[str, str]:
        resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
        asked = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
        (result,) = self.call("describe_configs", 4, asked)["results"]
        return {entry["name"]: entry["value"] for entry in result["configs"]}

    def offset(self, topic: str, index: int, timestamp: int) -> int:
        """Return an offset: −2 asks for the log start offset, −1 for the end offset."""
        partitions = [{"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}]
        asked = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": topic, "partitions": partitions}],
        }
        answer = self.call("list_offsets", 6, asked)
        return int(answer["topics"][0]["partitions"][0]["offset"])

    # --- producing

    def producer_id(self) -> int:
        """Return a new producer id."""
        asked = {
            "transactional_id": None,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = self.call("init_producer_id", 4, asked)
        assert answer["error_code"] == 0, answer
        return int(answer["producer_id"])

    def produce(self, topic: str, batch: Batch, index: int = 0) -> Plain:
        """Produce a batch; return the partition's answer."""
        data = [{"name": topic, "partition_data": [{"index": index, "records": batch.encode()}]}]
        asked = {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": data}
        answer = self.call("produce", 9, asked)
        return answer["responses"][0]["partition_responses"][0]  # type: ignore[no-any-return]

    def append(self, topic: str, batch: Batch, index: int = 0) -> int:
        """Produce a batch that must be accepted; return its base offset."""
        answer = self.produce(topic, batch, index)
        assert answer["error_code"] == 0, (topic, answer)
        return int(answer["base_offset"])

    # --- groups

    def commit(self, group: str, topic: str, index: int, offset: int, metadata: str, **member: Any) -> None:
        partition = {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": 0,
            "committed_metadata": metadata,
        }
        asked = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": topic, "partitions": [partition]}],
            **member,
        }
        answer = self.until(
            lambda: self.call("offset_commit", 9, asked),
            lambda found: found["topics"][0]["partitions"][0]["error_code"] not in NOT_READY,
        )
        assert answer["topics"][0]["partitions"][0]["error_code"] == 0, answer

    def offsets(self, group: str) -> dict[str, list[Any]]:
        """Return offset, leader epoch and metadata by partition, in the manifest's form."""
        asked = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}
        answer = self.until(
            lambda: self.call("offset_fetch", 9, {"groups": [asked], "require_stable": False}),
            lambda found: found["groups"][0]["error_code"] not in NOT_READY,
        )
        return {
            place(topic["name"], one["partition_index"]): [
                one["committed_offset"],
                one["committed_leader_epoch"],
                one["metadata"],
            ]
            for topic in answer["groups"][0]["topics"]
            for one in topic["partitions"]
        }

    def group_types(self) -> dict[str, str]:
        answer = self.call("list_groups", 5, {"states_filter": [], "types_filter": []})
        return {group["group_id"]: group["group_type"] for group in answer["groups"]}

    # --- transactions

    def transactions(self) -> dict[str, str]:
        """Return the states of transactions by transactional id."""
        answer = self.call("list_transactions", 0, {"state_filters": [], "producer_id_filters": []})
        return {one["transactional_id"]: one["transaction_state"] for one in answer["transaction_states"]}


class ShareMember:
    """The only member of a share group that reads one topic with one partition."""

    def __init__(self, asking: Asking, group: str, topic: str, member_id: str = SHARE_MEMBER) -> None:
        self._asking = asking
        self._group = group
        self._topic = topic
        self._topic_id = asking.topic_ids()[topic]
        self._member = {"group_id": group, "member_id": member_id}
        self._session_epoch = 0

    def join(self) -> None:
        """Send heartbeats until the member has the partition."""
        self._asking.coordinator(self._group)
        self._asking.coordinator(f"{self._group}:{uuid.UUID(self._topic_id)}:0", 2)
        epoch = 0

        def beat() -> Plain:
            names = [self._topic] if epoch == 0 else None
            asked = {**self._member, "member_epoch": epoch, "rack_id": None, "subscribed_topic_names": names}
            return self._asking.call("share_group_heartbeat", 1, asked)

        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            answer = beat()
            assert time.monotonic() < deadline_s, answer
            if answer["error_code"] == 0:
                epoch = answer["member_epoch"]
                if answer["assignment"] and answer["assignment"]["topic_partitions"]:
                    return

    def acquire(self, *acknowledged: tuple[int, int]) -> list[list[int]]:
        """Return [offset, delivery count] of the acquired records; `acknowledged` are (offset, type) of
        earlier ones.
        """
        asked = {
            **self._acknowledging(acknowledged),
            "max_wait": 200,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "forgotten_topics_data": [],
        }
        answer = self._asking.call("share_fetch", 1, asked)
        assert answer["error_code"] == 0, answer
        self._session_epoch += 1
        given: list[list[int]] = []
        for topic in answer["responses"]:
            for one in topic["partitions"]:
                assert (one["error_code"], one["acknowledge_error_code"]) == (0, 0), answer
                for run in one["acquired_records"]:
                    given += [
                        [offset, run["delivery_count"]]
                        for offset in range(run["first_offset"], run["last_offset"] + 1)
                    ]
        return sorted(given)

    def acknowledge(self, *acknowledged: tuple[int, int]) -> None:
        """Acknowledge without acquiring new records."""
        answer = self._asking.call("share_acknowledge", 1, self._acknowledging(acknowledged))
        assert answer["error_code"] == 0, answer
        assert all(one["error_code"] == 0 for topic in answer["responses"] for one in topic["partitions"]), (
            answer
        )
        self._session_epoch += 1

    def _acknowledging(self, acknowledged: Sequence[tuple[int, int]]) -> Plain:
        batches = [
            {"first_offset": offset, "last_offset": offset, "acknowledge_types": [kind]}
            for offset, kind in acknowledged
        ]
        partition = {"partition_index": 0, "acknowledgement_batches": batches}
        return {
            **self._member,
            "share_session_epoch": self._session_epoch,
            "topics": [{"topic_id": self._topic_id, "partitions": [partition]}],
        }

    def acquire_all(self, count: int) -> list[list[int]]:
        """Fetch until this many records are acquired; return all of them."""
        given = self.acquire()
        deadline_s = time.monotonic() + DEADLINE_S
        while len(given) < count:
            assert time.monotonic() < deadline_s, (self._group, given)
            given += self.acquire()
        return sorted(given)


def read_all(bootstrap: str, places: Collection[str], *, committed: bool = False) -> dict[str, list[Row]]:
    """Return every record of the partitions as librdkafka reads them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-all",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "check.crcs": True,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    found: dict[str, list[Row]] = {one: [] for one in places}
    try:
        consumer.assign([TopicPartition(*split_place(one), 0) for one in places])
        unfinished = set(places)
        deadline_s = time.monotonic() + DEADLINE_S
        while unfinished:
            assert time.monotonic() < deadline_s, f"not read to their ends: {sorted(unfinished)}"
            for message in consumer.consume(500, 0.2):
                error = message.error()
                one = place(str(message.topic()), int(message.partition() or 0))
                if error is None:
                    found[one].append(_row(message))
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    unfinished.discard(one)
    finally:
        consumer.close()
    return found


def _row(message: Any) -> Row:
    headers = [(name, content) for name, content in message.headers() or ()]
    return row(message.offset(), message.timestamp()[1], message.key(), message.value(), headers)
