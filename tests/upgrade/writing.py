"""Writes everything that a gateway of some release can store, and returns its answers as a manifest.

Features that the release does not have are left out: its list of APIs, or a refused topic config, shows
which.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

from tests.support.batches import CODECS, Batch, Record
from tests.support.group_members import know_topic
from tests.support.named_batches import named
from tests.support.wire import Plain
from tests.upgrade import security
from tests.upgrade.asking import BROKER, DEADLINE_S, TOPIC, Asking, ShareMember, place, read_all
from tests.upgrade.manifest import Manifest, SentBatch, row

T0_MS = 1_700_000_000_000
RETAINED_BATCHES = 5
ACCEPT, RELEASE, REJECT = 1, 2, 3
KEEP = {"retention_ms": "-1"}
SEGMENT_BYTES = 1 << 20
LARGE = 300_000
"""The size of a value, in bytes. A few such values fill a segment, and they do not compress."""
FAR_MS = 4_102_444_800_000
"""A time in the year 2100."""
MAKING = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "log.cleaner.backoff.ms": "50",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.max.timeout.ms": "2147483647",
    "log.segment.delete.delay.ms": "0",
    **security.SECURED,
}
"""The settings of the gateway that writes a fixture; those that its release lacks are left out."""


class Writing:
    """A gateway, and the manifest of everything that it has acknowledged."""

    def __init__(self, bootstrap: str, logins: str, release: str, ended: str) -> None:
        self.bootstrap = bootstrap
        self.logins = logins
        self.manifest = Manifest(release, ended)
        self.asking = Asking(bootstrap)

    def everything(self) -> Manifest:
        """Write everything that the release supports."""
        parts: list[tuple[str | None, Callable[[], None]]] = [
            (None, self.codecs),
            (None, self.clients),
            (None, self.idempotent),
            (None, self.rolled),
            (None, self.deleted),
            ("incremental_alter_configs", self.configs),
            ("offset_commit", self.groups),
            ("consumer_group_heartbeat", self.consumer_groups),
            ("share_fetch", self.shares),
            ("end_txn", self.transactions),
            (None, self.compacted),
            ("share_fetch", self.delayed),
            (None, self.named),
            ("create_acls", self.entries),
            ("alter_client_quotas", self.quotas),
            ("alter_user_scram_credentials", self.users),
            ("create_delegation_token", self.tokens),
        ]
        for api, write in parts:
            if api is None or self.asking.has(api):
                write()
        manifest = self.manifest
        manifest.topics = self.asking.topic_ids()
        for one in sorted(manifest.records):
            topic, _, index = one.rpartition("/")
            manifest.ends[one] = [
                self.asking.offset(topic, int(index), -2),
                self.asking.offset(topic, int(index), -1),
            ]
        self.asking.close()
        return manifest

    def _create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        assert self.asking.create(topic, partitions, **KEEP, **configs) == 0, topic

    def _append(self, topic: str, batch: Batch, index: int = 0) -> int:
        """Append the batch and note its records."""
        base_offset = self.asking.append(topic, batch, index)
        rows = self.manifest.records.setdefault(place(topic, index), [])
        for number, record in enumerate(batch.records):
            headers = [(name.decode(), content) for name, content in record.headers]
            timestamp_ms = batch.base_timestamp + record.timestamp_delta
            rows.append(row(base_offset + number, timestamp_ms, record.key, record.value, headers))
        return base_offset

    def codecs(self) -> None:
        """Write batches in every codec, with keys, headers and null fields."""
        self._create("codecs")
        for number, codec in enumerate(CODECS):
            records = (
                Record(value=f"{codec} 0".encode() * 4, key=b"key", headers=[(b"a", b"1"), (b"b", None)]),
                Record(value=None, key=b"gone", timestamp_delta=5),
                Record(value=b"", key=None, timestamp_delta=3, headers=[("ä".encode(), b"")]),
            )
            self._append("codecs", Batch(records, codec=codec, base_timestamp=T0_MS + number * 1000))

    def clients(self) -> None:
        """Write with the client libraries, idempotent and not, to several partitions."""
        self._create("clients", 3)
        sent = [
            (number % 3, T0_MS + number, f"key-{number}".encode(), f"v{number}".encode())
            for number in range(12)
        ]
        noted = self.manifest.records
        for index in range(3):
            noted[place("clients", index)] = []

        def note(index: int, offset: int, number: int) -> None:
            _, timestamp_ms, key, value = sent[number]
            noted[place("clients", index)].append(row(offset, timestamp_ms, key, value))

        confluent = Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "compression.type": "zstd"}
        )
        for number, (index, timestamp_ms, key, value) in enumerate(sent[:6]):
            confluent.produce(
                "clients",
                value,
                key,
                index,
                timestamp=timestamp_ms,
                on_delivery=lambda _, message, number=number: note(
                    message.partition(), message.offset(), number
                ),
            )
            assert confluent.flush(DEADLINE_S) == 0
        python = KafkaProducer(bootstrap_servers=self.bootstrap, acks="all", compression_type="gzip")
        for number, (index, timestamp_ms, key, value) in enumerate(sent[6:], start=6):
            told = python.send("clients", value, key, partition=index, timestamp_ms=timestamp_ms)
            answer = told.get(DEADLINE_S)
            note(answer.partition, answer.offset, number)
        python.close()

    def _send(self, topic: str, producer_id: int, counts: list[int], value: bytes = b"v") -> None:
        """Send batches with these numbers of records, and note those in the producer's window."""
        sequence = 0
        sent = []
        for number, count in enumerate(counts):
            records = tuple(Record(value=value + b"%d" % (sequence + index)) for index in range(count))
            batch = Batch(records, base_timestamp=T0_MS + number).of(producer_id, 0, sequence)
            base_offset = self._append(topic, batch)
            sent.append(SentBatch(place(topic), producer_id, 0, sequence, count, base_offset, is_last=False))
            sequence += count
        sent[-1].is_last = True
        self.manifest.batches += sent[-RETAINED_BATCHES:]

    def _producer_id(self) -> int:
        producer_id = self.asking.producer_id()
        self.manifest.producer_ids.append(producer_id)
        return producer_id

    def idempotent(self) -> None:
        """Write as three producers in turn, without gaps, with more batches than a window holds, or fewer."""
        self._create("idempotent")
        for counts in ([1, 2, 3, 1, 2, 3, 1, 4], [5], [1, 1, 2]):
            self._send("idempotent", self._producer_id(), counts)

    def rolled(self) -> None:
        """Write closed segments, and delete some of them, with all batches of one producer."""
        self._create("rolled", segment_bytes=str(SEGMENT_BYTES))
        first, second = self._producer_id(), self._producer_id()
        self._send("rolled", first, [1, 2])
        self._send("rolled", second, [1] * 12, b"r" * LARGE)
        start_offset = 8
        topics = [{"name": "rolled", "partitions": [{"partition_index": 0, "offset": start_offset}]}]
        answer = self.asking.call("delete_records", 2, {"topics": topics, "timeout": 10_000})
        assert answer["topics"][0]["partitions"][0]["error_code"] == 0, answer
        noted = self.manifest.records
        noted[place("rolled")] = [one for one in noted[place("rolled")] if one[0] >= start_offset]

    def deleted(self) -> None:
        """Delete one topic, and delete and recreate another one."""
        for name in ("deleted", "again"):
            self._create(name, 2)
            self.asking.append(name, Batch())
            answer = self.asking.call("delete_topics", 4, {"topic_names": [name], "timeout": 10_000})
            assert answer["responses"][0]["error_code"] == 0, answer
        self._create("again")
        self._append("again", Batch((Record(value=b"second life"),), base_timestamp=T0_MS))
        self._create("empty")
        self.manifest.records[place("empty")] = []

    def configs(self) -> None:
        """Alter configs while the gateway runs."""
        self._create("altered")
        self.manifest.records[place("altered")] = []
        self.asking.alter(TOPIC, "altered", max_message_bytes="123456", segment_bytes="2097152")
        self.manifest.configs["altered"] = {"max.message.bytes": "123456", "segment.bytes": "2097152"}
        self.asking.alter(BROKER, "1", message_max_bytes="2345678")
        self.manifest.configs[""] = {"message.max.bytes": "2345678"}

    def groups(self) -> None:
        """Create classic groups: one that only commits, and one whose member has left."""
        self.asking.coordinator("commits")
        self.asking.commit("commits", "codecs", 0, 7, "a word of its own")
        self.asking.commit("commits", "clients", 2, 3, "")
        self.asking.commit("commits", "codecs", 0, 9, "a later word")
        consumer = KafkaConsumer(
            "clients",
            bootstrap_servers=self.bootstrap,
            group_id="reads",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        know_topic(consumer, "clients")
        deadline_s, count = time.monotonic() + DEADLINE_S, 0
        while count < 12:
            assert time.monotonic() < deadline_s
            count += sum(map(len, consumer.poll(2_000).values()))
        consumer.commit()
        assert consumer.committed(PythonPartition("clients", 0))
        consumer.close()
        self._note_group("commits", "classic")
        self._note_group("reads", "classic")

    def _note_group(self, group: str, kind: str) -> None:
        self.manifest.offsets[group] = self.asking.offsets(group)
        self.manifest.group_types[group] = kind

    def consumer_groups(self) -> None:
        """Create a consumer group with a member that stays."""
        self.asking.coordinator("kip-848")
        first = {
            "group_id": "kip-848",
            "member_id": "member-1",
            "member_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": 30_000,
            "subscribed_topic_names": ["clients"],
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": [],
        }

        def beat(asked: Plain) -> Plain:
            return self.asking.call("consumer_group_heartbeat", 0, asked)

        answer = self.asking.until(lambda: beat(first), lambda found: found["error_code"] == 0)
        self.asking.commit(
            "kip-848",
            "clients",
            1,
            2,
            "kip-848's",
            generation_id_or_member_epoch=answer["member_epoch"],
            member_id="member-1",
        )
        self._note_group("kip-848", "consumer")

    def shares(self) -> None:
        """Create a share group that accepted, rejected and released records, some of them twice."""
        self._create("shared")
        member = ShareMember(self.asking, "shares", "shared")
        member.join()
        assert not member.acquire(), "the group must begin at the end of the log"
        for number in range(8):
            self._append("shared", Batch((Record(value=b"share %d" % number),), base_timestamp=T0_MS))
        assert len(member.acquire_all(8)) == 8
        member.acknowledge((0, ACCEPT), (1, RELEASE), (2, ACCEPT), (4, REJECT), (6, RELEASE))
        assert member.acquire_all(2) == [[1, 2], [6, 2]]
        member.acknowledge(*((offset, RELEASE) for offset in (1, 3, 5, 6, 7)))
        self.manifest.shares["shares"] = [[1, 3], [3, 2], [5, 2], [6, 3], [7, 2]]

    def transactions(self) -> None:
        """Write committed and aborted transactions, offsets in them, and one that stays open."""
        self._create("transactional")
        ended = self._transactional("ends")
        ended.init_transactions(DEADLINE_S)
        for number, is_committed in enumerate((True, False, True, False)):
            ended.begin_transaction()
            self._produce_in(ended, f"ends-{number}")
            self._send_offsets(ended, number)
            (ended.commit_transaction if is_committed else ended.abort_transaction)(DEADLINE_S)
        opened = self._transactional("open")
        opened.init_transactions(DEADLINE_S)
        opened.begin_transaction()
        self._produce_in(opened, "open")
        self._send_offsets(opened, 77)
        self.opened = opened  # ending the process would abort the transaction
        self._append("transactional", Batch((Record(value=b"behind the open one"),), base_timestamp=T0_MS))
        self._note_group("in-transactions", "classic")
        assert self.manifest.offsets["in-transactions"] == {place("clients"): [2, -1, ""]}
        found = read_all(self.bootstrap, [place("transactional")], committed=True)
        self.manifest.committed[place("transactional")] = [one[0] for one in found[place("transactional")]]
        assert len(self.manifest.committed[place("transactional")]) == 4
        self.manifest.transactions = self.asking.transactions()
        assert self.manifest.transactions["open"] == "Ongoing"

    def _transactional(self, transactional_id: str) -> Producer:
        self.asking.coordinator(transactional_id, 1)
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 2**31 - 1,
                "linger.ms": 0,
                "log_level": 0,
            }
        )

    def _produce_in(self, producer: Producer, text: str) -> None:
        rows = self.manifest.records.setdefault(place("transactional"), [])
        for number in range(2):
            value = f"{text}, {number}".encode()
            producer.produce(
                "transactional",
                value,
                timestamp=T0_MS + number,
                on_delivery=lambda _, message: rows.append(
                    row(message.offset(), message.timestamp()[1], None, message.value())
                ),
            )
            assert producer.flush(DEADLINE_S) == 0

    def _send_offsets(self, producer: Producer, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "in-transactions"})
        places = [TopicPartition("clients", 0, offset)]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), DEADLINE_S)
        consumer.close()

    def compacted(self) -> None:
        """Write a topic from which compaction has removed records."""
        settings = {
            "cleanup_policy": "compact",
            "min_cleanable_dirty_ratio": "0.01",
            "segment_bytes": str(SEGMENT_BYTES),
        }
        if self.asking.create("compacted", **KEEP, **settings) or not self._compacts():
            return
        large = Record(value=b"c" * LARGE, key=b"large")
        for number in range(12):
            records = (Record(value=b"v%d" % number, key=b"k%d" % (number % 3)), large)
            self._append("compacted", Batch(records, base_timestamp=T0_MS + number))
        one = place("compacted")
        # In closed segments the newest record of each key stays, in the active segment every record. A reader
        # that came between two swapped segments would find more.
        closed_keys, active_records = 4, 2 * (SEGMENT_BYTES // LARGE)
        deadline_s = time.monotonic() + DEADLINE_S
        while len(found := read_all(self.bootstrap, [one])[one]) > closed_keys + active_records:
            assert time.monotonic() < deadline_s, f"{len(found)} records are left"
        written = {tuple(map(str, sent)) for sent in self.manifest.records[one]}
        assert {tuple(map(str, read)) for read in found} < written
        self.manifest.records[one] = found

    def _compacts(self) -> bool:
        """Return whether the release compacts. Earlier ones accepted the config and kept everything."""
        return "log.cleaner.backoff.ms" in self.asking.configs(BROKER, "1")

    def delayed(self) -> None:
        """Write delayed records, some of which are due."""
        if self.asking.create(
            "delayed", **KEEP, delivery_delay_header="due", delivery_delay_max_ms=str(2**62)
        ):
            return
        self.asking.alter(32, "delays", share_auto_offset_reset="earliest")
        member = ShareMember(self.asking, "delays", "delayed")
        member.join()
        assert not member.acquire()
        for due_ms in (T0_MS, FAR_MS, T0_MS, FAR_MS + 1, FAR_MS - 1):
            record = Record(value=b"due", headers=[(b"due", str(due_ms).encode())])
            self._append("delayed", Batch((replace(record),), base_timestamp=T0_MS))
        assert member.acquire_all(2) == [[0, 1], [2, 1]]
        member.acknowledge((0, ACCEPT), (2, RELEASE))
        self.manifest.delayed["delays"] = [2]

    def named(self) -> None:
        """Write records with producer names, their reported sequence ids, and duplicates."""
        if self.asking.create("named", **KEEP, message_deduplication_enable="true"):
            return
        self._append("named", replace(named("loader", 1, 2, 5, epoch=3), base_timestamp=T0_MS))
        self._append("named", replace(named("other", 7), base_timestamp=T0_MS))
        assert self.asking.append("named", named("loader", 2, 5, epoch=3)) == -1
        for group in ("seqgate-name:loader", "seqgate-name:other"):
            self.manifest.offsets[group] = self.asking.offsets(group)
            assert self.manifest.offsets[group]

    def entries(self) -> None:
        """Create access control entries."""
        security.write_entries(self.asking)
        self.manifest.entries = security.entries(self.asking)
        assert len(self.manifest.entries) == len(security.ENTRIES)

    def quotas(self) -> None:
        """Set client quotas of users, client ids, pairs, defaults and addresses."""
        security.write_quotas(self.asking)
        self.manifest.quotas = security.quotas(self.asking)
        assert len(self.manifest.quotas) == len(security.QUOTAS)

    def users(self) -> None:
        """Set passwords of users."""
        security.write_users(self.asking)
        self.manifest.users = security.users(self.asking)
        assert self.manifest.users.keys() == security.PASSWORDS.keys()

    def tokens(self) -> None:
        """Create delegation tokens."""
        security.write_tokens(self.logins)
        self.manifest.tokens = security.tokens(self.logins)
        assert len(self.manifest.tokens) == 2
