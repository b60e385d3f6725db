"""Checks that a gateway has exactly the contents of a manifest, and continues from there."""

from __future__ import annotations

from confluent_kafka import Producer

from tests.support.batches import Batch, Record
from tests.support.gateway_process import GatewayProcess
from tests.upgrade import security
from tests.upgrade.asking import BROKER, DEADLINE_S, TOPIC, Asking, ShareMember, place, read_all, split_place
from tests.upgrade.manifest import Manifest, SentBatch

OUT_OF_ORDER_SEQUENCE = 45
NEW_MEMBER = "CAgICAgICAgICAgICAgICA"
OPENING = {
    "producer.id.expiration.ms": "2147483647",
    "offsets.retention.minutes": "2147483647",
    "transactional.id.expiration.ms": "2147483647",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2147483647",
    "transaction.max.timeout.ms": "2147483647",
    "log.cleaner.enable": "false",
    **security.SECURED,
}
"""Settings under which nothing expires, however old the fixture is."""


class Opened:
    """A gateway on the data of an earlier release."""

    def __init__(self, bootstrap: str, logins: str, manifest: Manifest) -> None:
        self.bootstrap = bootstrap
        self.logins = logins
        self.manifest = manifest
        self.asking = Asking(bootstrap)
        self._appended: dict[str, int] = {}

    def close(self) -> None:
        self.asking.close()

    def compare_stored(self) -> None:
        """Compare topics, configs, records, groups and transactions. This changes none of them."""
        manifest, asking = self.manifest, self.asking
        assert asking.topic_ids() == manifest.topics
        for name, configs in manifest.configs.items():
            found = asking.configs(TOPIC if name else BROKER, name or "1")
            assert {config: found[config] for config in configs} == configs
        for one, ends in manifest.ends.items():
            assert [asking.offset(*split_place(one), -2), asking.offset(*split_place(one), -1)] == ends, one
        for one, rows in read_all(self.bootstrap, manifest.records).items():
            assert rows == manifest.records[one], one
        committed = read_all(self.bootstrap, manifest.committed, committed=True)
        assert {one: [row[0] for row in rows] for one, rows in committed.items()} == manifest.committed
        for group, offsets in manifest.offsets.items():
            assert asking.offsets(group) == offsets, group
        types = asking.group_types() if manifest.group_types else {}
        assert {group: types.get(group) for group in manifest.group_types} == manifest.group_types
        assert not manifest.transactions or asking.transactions() == manifest.transactions
        self._compare_security()

    def _compare_security(self) -> None:
        """Compare access control entries, quotas, users and tokens, and log in as all of them."""
        manifest, asking = self.manifest, self.asking
        assert security.entries(asking) == manifest.entries
        assert security.quotas(asking) == manifest.quotas
        assert security.users(asking) == manifest.users
        if manifest.users:
            assert security.tokens(self.logins) == manifest.tokens
            security.log_in_as_everybody(self.logins, manifest.tokens)

    def retry_batches(self) -> None:
        """Retry each batch in the producers' windows: the answer has its offset, and nothing is written."""
        for batch in self.manifest.batches:
            topic, index = split_place(batch.partition)
            answer = self.asking.produce(topic, _again(batch, 0), index)
            assert (answer["error_code"], answer["base_offset"]) == (0, batch.base_offset), (batch, answer)

    def go_on(self) -> None:
        """Continue: next batches are accepted, a gap is refused, and producer ids are new."""
        fresh = self.asking.producer_id()
        assert fresh not in self.manifest.producer_ids
        for batch in self.manifest.batches:
            if batch.is_last:
                self._go_on_after(batch)
        for one in [one for one in self.manifest.records if one.startswith(("codecs", "clients", "empty"))]:
            self._append(one, Batch((Record(value=b"more"),)).of(fresh, 0, 0))
        self.asking.create("fresh")
        self.manifest.topics["fresh"] = self.asking.topic_ids()["fresh"]
        self._append(place("fresh"), Batch((Record(value=b"more"),)))
        for group in list(self.manifest.offsets):
            if self.manifest.group_types.get(group) == "classic" and group != "in-transactions":
                self.asking.commit(group, "codecs", 0, 11, "after")
                self.manifest.offsets[group] |= {place("codecs"): [11, 0, "after"]}

    def _go_on_after(self, batch: SentBatch) -> None:
        topic, index = split_place(batch.partition)
        answer = self.asking.produce(topic, _again(batch, batch.record_count + 1), index)
        assert answer["error_code"] == OUT_OF_ORDER_SEQUENCE, (batch, answer)
        self._append(batch.partition, _again(batch, batch.record_count))

    def _append(self, one: str, batch: Batch) -> None:
        topic, index = split_place(one)
        ends = self.manifest.ends.setdefault(one, [0, 0])
        assert self.asking.append(topic, batch, index) == ends[1], one
        ends[1] += len(batch.records)
        self.manifest.records.setdefault(one, [])
        self._appended[one] = self._appended.get(one, 0) + len(batch.records)

    def read_appended(self) -> None:
        """Check that the old records are unchanged, with the new ones behind them."""
        for one, found in read_all(self.bootstrap, self._appended).items():
            rows = self.manifest.records[one]
            assert found[: len(rows)] == rows
            assert len(found) == len(rows) + self._appended[one]
            self.manifest.records[one] = found

    def share(self) -> None:
        """Check that share groups get the records nobody accepted or rejected, and the due ones of the
        delayed topic.
        """
        wanted = [(group, "shared", left) for group, left in self.manifest.shares.items()]
        wanted += [
            (group, "delayed", [[offset, 2] for offset in due])
            for group, due in self.manifest.delayed.items()
        ]
        for group, topic, left in wanted:
            member = ShareMember(self.asking, group, topic, NEW_MEMBER)
            member.join()
            given = member.acquire_all(len(left))
            assert given == left, (group, given)

    def end_transaction(self) -> None:
        """Begin the next instance of a transactional id: it aborts the open transaction, and later records
        become readable.
        """
        if "open" not in self.manifest.transactions:
            return
        one = place("transactional")
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": "open", "linger.ms": 0, "log_level": 0}
        )
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        producer.produce("transactional", b"in the next one")
        producer.commit_transaction(DEADLINE_S)
        found = read_all(self.bootstrap, [one], committed=True)[one]
        before = self.manifest.committed[one]
        assert [row[0] for row in found[: len(before)]] == before
        behind, last = found[len(before) :]
        everything = read_all(self.bootstrap, [one])[one]
        assert everything[: len(self.manifest.records[one])] == self.manifest.records[one]
        assert behind == self.manifest.records[one][-1]
        assert last == everything[-1]
        self.manifest.records[one] = everything
        self.manifest.committed[one] = [row[0] for row in found]
        self.manifest.ends[one][1] = self.asking.offset("transactional", 0, -1)
        self.manifest.transactions = self.asking.transactions()


def _again(batch: SentBatch, further: int) -> Batch:
    """Return a batch of the same producer and length, `further` sequences behind the given one."""
    records = tuple(Record() for _ in range(batch.record_count))
    return Batch(records).of(batch.producer_id, batch.producer_epoch, batch.base_sequence + further)


def go_on_over_a_restart(gateway: GatewayProcess, logins: str, manifest: Manifest) -> None:
    """Compare everything with the manifest, go on, and compare again after a restart."""
    opened = Opened(gateway.bootstrap, logins, manifest)
    opened.compare_stored()
    opened.retry_batches()
    opened.go_on()
    opened.read_appended()
    opened.share()
    opened.end_transaction()
    opened.close()
    gateway.restart()
    opened = Opened(gateway.bootstrap, logins, manifest)
    opened.compare_stored()
    opened.close()
