"""Checkers of clusters find breaches in small histories: two leaders, deposed ones, ends told too early,
seals and metadata.
"""

from __future__ import annotations

import uuid
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from seqgate.gateway.cluster.metadata.change import CHANGE, StoredChange, encode_change, placed_batch
from seqgate.gateway.cluster.metadata.snapshot import encode_snapshot, image_batches
from seqgate.gateway.cluster.wal.sessions import RegisteredSession, Snapshot
from seqgate.gateway.cluster.wal.wal_object import registration_key, snapshot_key
from seqgate.gateway.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    encode_record,
)
from seqgate.gateway.runtime.topics.metadata_log import change_batch
from tests.simulation.checkers import check
from tests.simulation.checkers.metadata_changes import Change, changes_of, unfit_changes
from tests.simulation.checkers.sealed import Confirmed, Sealed, SessionName, confirmed_behind_seals
from tests.simulation.checkers.shortened_metadata import Taken, first_objects, strange_takes, wrong_snapshots
from tests.simulation.events_of_clusters import EpochsRead, LedBy
from tests.simulation.history import History, OffsetListed
from tests.simulation.story import P0, P1, Story, rec
from tests.support.simulated_objects import SimulatedBucket

NONCE, OTHER_NONCE = bytes(16), bytes([1]) * 16
TOPIC = uuid.UUID(int=7)


def led(
    story: Story, node_id: int, epoch: int, *, asked_at_ms: int | None = None, partition: object = P0
) -> None:
    asked_at_ms = story.tick() if asked_at_ms is None else asked_at_ms
    story.add(LedBy(story.tick(), node_id, partition, epoch, asked_at_ms))  # type: ignore[arg-type]


class TestLeaders:
    def test_two_leaders_in_one_epoch(self) -> None:
        story = Story()
        led(story, 1, 3)
        led(story, 2, 3)
        assert story.found() == {"leaders"}

    def test_leaders_of_two_partitions_and_of_two_epochs(self) -> None:
        story = Story()
        led(story, 1, 3)
        led(story, 2, 3, partition=P1)
        led(story, 2, 4)
        assert story.found() == set()

    def test_an_earlier_leader_that_is_asked_after_a_later_one_has_answered(self) -> None:
        story = Story()
        led(story, 2, 4)
        led(story, 1, 3)
        assert story.found() == {"deposed"}

    def test_an_earlier_leader_may_have_been_asked_before(self) -> None:
        story = Story()
        led(story, 2, 4, asked_at_ms=0)
        led(story, 1, 3, asked_at_ms=0)
        assert story.found() == set()

    @given(seed=st.integers(0, 2**32))
    def test_leaders_that_follow_each_other_are_sound_and_any_exchange_is_not(self, seed: int) -> None:
        chance, story = Random(seed), Story()
        epoch, node_id = 0, 1
        for _ in range(20):
            if chance.random() < 0.3:
                epoch, node_id = epoch + 1, chance.choice([one for one in (1, 2, 3) if one != node_id])
            led(story, node_id, epoch)
        assert story.found() == set()
        events = story.history.events
        one, other = chance.choice(events), chance.choice(events)
        assert isinstance(one, LedBy)
        assert isinstance(other, LedBy)
        assume(one.node_id != other.node_id)
        changed = LedBy(one.at_ms, other.node_id, P0, one.leader_epoch, one.asked_at_ms)
        altered = [changed if event is one else event for event in events]
        assume(
            sum(event.leader_epoch == one.leader_epoch for event in events if isinstance(event, LedBy)) > 1
        )
        assert set(check(History(altered))) == {"leaders"}


class TestEpochs:
    def test_batches_of_an_earlier_epoch_behind_later_ones(self) -> None:
        story = Story()
        story.add(EpochsRead(story.tick(), P0, ((0, 4, 1), (5, 9, 0))))
        assert story.found() == {"epochs"}

    def test_an_offset_that_is_read_in_two_epochs(self) -> None:
        story = Story()
        story.add(EpochsRead(story.tick(), P0, ((0, 4, 0),)))
        story.add(EpochsRead(story.tick(), P0, ((3, 9, 1),)))
        assert story.found() == {"epochs"}

    def test_ascending_epochs(self) -> None:
        story = Story()
        story.add(EpochsRead(story.tick(), P0, ((0, 4, 0), (5, 9, 2))))
        story.add(EpochsRead(story.tick(), P0, ((2, 4, 0), (5, 6, 2))))
        story.add(EpochsRead(story.tick(), P1, ((0, 9, 1),)))
        assert story.found() == set()


class TestLatest:
    def test_an_end_behind_a_record_that_is_sent_later(self) -> None:
        story = Story()
        story.fetched([], high_watermark=1)
        story.acknowledged(rec(0), 0)
        story.final([rec(0)])
        assert story.found() == {"latest"}

    def test_a_listed_end_behind_a_record_that_is_sent_later(self) -> None:
        story = Story()
        story.acknowledged(rec(0), 0)
        story.add(OffsetListed(story.tick(), "c", P0, False, -1, 2, story.now_ms))
        story.acknowledged(rec(1), 1)
        story.final([rec(0), rec(1)])
        assert story.found() == {"latest"}

    def test_an_end_at_some_moment_before_the_answer(self) -> None:
        story = Story()
        story.acknowledged(rec(0), 0)
        asked_at_ms = story.tick()
        story.acknowledged(rec(1), 1)
        story.fetched([rec(0)], high_watermark=1, asked_at_ms=asked_at_ms)
        story.fetched([rec(0), rec(1)])
        story.final([rec(0), rec(1)])
        assert story.found() == set()


SESSION = SessionName(1, 5)


class TestSealed:
    @pytest.mark.parametrize("end_seq", [9, 12])
    def test_an_object_that_is_confirmed_behind_the_seal_of_another_gateway(self, end_seq: int) -> None:
        confirmed = [Confirmed(SESSION, NONCE, end_seq)]
        assert len(confirmed_behind_seals(confirmed, {SESSION: Sealed(8, OTHER_NONCE)})) == 1

    def test_objects_before_the_seal_and_a_seal_of_the_session_itself(self) -> None:
        assert confirmed_behind_seals([Confirmed(SESSION, NONCE, 8)], {SESSION: Sealed(8, OTHER_NONCE)}) == []
        assert confirmed_behind_seals([Confirmed(SESSION, NONCE, 9)], {SESSION: Sealed(8, NONCE)}) == []

    def test_a_session_without_a_seal(self) -> None:
        assert (
            confirmed_behind_seals([Confirmed(SESSION, NONCE, 100)], {SessionName(1, 6): Sealed(0, NONCE)})
            == []
        )


def partition(leader: int, epoch: int, partition_epoch: int) -> PartitionRecord:
    return PartitionRecord(0, TOPIC, (1, 2), (1, 2), leader, epoch, partition_epoch)


def broker(node_id: int, epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(node_id, uuid.UUID(int=node_id), epoch, ())


SOUND = (
    (broker(1, 0), broker(2, 1), TopicRecord("t", TOPIC), partition(1, 0, 0)),
    (ProducerIdsRecord(1, 0, 1000, 0),),
    (BrokerRegistrationChangeRecord(1, 0, fenced=1), partition(2, 1, 1)),
    (broker(1, 5),),
    (partition(1, 2, 2),),
    (ProducerIdsRecord(2, 1, 2000, 1000),),
)


def story_of(*changes: tuple[object, ...]) -> list[str]:
    """Return the breaches of changes that follow the sound ones."""
    made, offset = [], 0
    for seq, records in enumerate((*SOUND, *changes)):
        made.append(Change(seq, offset, records))
        offset += len(records)
    return unfit_changes(made)


class TestMetadata:
    def test_sound_changes(self) -> None:
        assert story_of() == []
        assert story_of((RemoveTopicRecord(TOPIC),), (UnregisterBrokerRecord(2, 1),)) == []

    @pytest.mark.parametrize(
        "record",
        [
            partition(2, 2, 3),
            partition(2, 4, 3),
            partition(2, 1, 3),
            partition(2, 3, 2),
            partition(2, 3, 5),
            partition(3, 3, 3),
            broker(1, 5),
            broker(2, 0),
            BrokerRegistrationChangeRecord(1, 0, fenced=1),
            UnregisterBrokerRecord(1, 0),
            TopicRecord("t", uuid.UUID(int=8)),
            RemoveTopicRecord(uuid.UUID(int=8)),
            ProducerIdsRecord(2, 1, 2000, 1000),
            ProducerIdsRecord(2, 1, 500),
        ],
        ids=repr,
    )
    def test_a_change_that_was_decided_on_older_metadata(self, record: object) -> None:
        assert len(story_of((record,))) == 1

    def test_a_change_at_another_offset_and_one_in_another_order(self) -> None:
        assert len(unfit_changes([Change(0, 0, SOUND[0]), Change(1, 3, ())])) == 1
        assert len(unfit_changes([Change(1, 0, SOUND[0]), Change(0, 4, ())])) == 1

    def test_a_hole_in_the_log_and_an_object_that_is_no_change(self) -> None:
        bucket = SimulatedBucket()
        bucket.create("meta/00000000000000000000", b"SQMC", 0.0)
        bucket.create("meta/00000000000000000002", b"SQMC", 0.0)
        _, breaches = changes_of(bucket)
        assert breaches == ["metadata: meta/00000000000000000002 has no object before it"]
        del bucket.objects["meta/00000000000000000002"]
        _, breaches = changes_of(bucket)
        assert len(breaches) == 1


class TestShortenedMetadata:
    @staticmethod
    def _written() -> tuple[SimulatedBucket, list[Taken]]:
        """A bucket with two changes, the first of which was deleted, and what a gateway took."""
        bucket, taken = SimulatedBucket(), []
        for seq, name in enumerate(("a", "b")):
            record = ConfigRecord(2, name, "retention.ms", "1")
            batch = placed_batch(change_batch([record], 0), seq)
            change = StoredChange(CHANGE, 1, 0, seq, bytes(16), seq, batch)
            bucket.create(registration_key(seq), encode_change(change), seq)
            taken.append(Taken(7, change))
        bucket.delete(registration_key(0), 5)
        return bucket, taken

    @staticmethod
    def _snapshot(bucket: SimulatedBucket, seq: int, *names: str) -> None:
        session = RegisteredSession(0, 1, bytes(16), "c", 4, 0, "h", "r")
        values = [encode_record(ConfigRecord(2, name, "retention.ms", "1")) for name in names]
        made = Snapshot(seq, seq, "c", 1, (session,), image_batches(values, seq, 0))
        bucket.create(snapshot_key(seq), encode_snapshot(made), 6)

    def test_the_first_object_of_a_place_counts(self) -> None:
        bucket, taken = self._written()
        firsts = first_objects(bucket)
        assert list(firsts) == [0, 1]
        assert strange_takes(taken, firsts) == []
        assert changes_of(bucket)[1] == []

    def test_an_object_in_an_emptied_place_is_none_of_the_log(self) -> None:
        bucket, taken = self._written()
        late = taken[0].entry._replace(session=9)
        assert isinstance(late, StoredChange)
        bucket.create(registration_key(0), encode_change(late), 9)
        assert first_objects(bucket)[0] == encode_change(taken[0].entry)  # type: ignore[arg-type]
        (breach,) = strange_takes([*taken, Taken(9, late)], first_objects(bucket))
        assert "session 9 took an object for change 0" in breach

    def test_a_snapshot_must_be_the_image_of_what_is_before_it(self) -> None:
        bucket, _ = self._written()
        self._snapshot(bucket, 1, "a")
        self._snapshot(bucket, 2, "a", "b")
        assert wrong_snapshots(bucket, first_objects(bucket)) == []
        bucket.delete(snapshot_key(2), 7)
        self._snapshot(bucket, 2, "a")
        (breach,) = wrong_snapshots(bucket, first_objects(bucket))
        assert "snapshot 2 is not the image" in breach
