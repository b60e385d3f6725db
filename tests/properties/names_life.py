"""A deduplicating partition on a failing disk, next to a model of what it must remember.

Applications have a name and number their records; they may send records again from any earlier position.
After each step the log must store exactly the records of the model and remember exactly the names that all
its batches give. Acknowledged records must be stored and durable.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from seqgate.log import InvalidRecord, LocalDurability, LogConfig, Storage, StorageFailed
from seqgate.log.errors import NameFenced, NameLimitReached, NamesNotReady, NameUndecided
from seqgate.log.files.file_names import DEDUPLICATION_START, NAMES_SUFFIX
from seqgate.log.format.records import NewRecord, build_batch
from tests.faults.simulated_disk import SimulatedDisk
from tests.log.support import append_end_marker
from tests.models.names import NO_PRODUCER
from tests.properties.history_of_names import APPLICATIONS, Decided, Item, StoredBatch, StoredItem
from tests.properties.named_log_content import encode
from tests.properties.names_that_outlive_records import NamesThatOutliveRecords

CONFIG = LogConfig(
    deep_validation=False,  # records without a key come to topics that compact, too
    segment_bytes=1_500,
    index_interval_bytes=150,
    retention_ms=-1,
    file_delete_delay_ms=0,
    deduplicates=True,
    deduplication_expiration_ms=-1,
    deduplication_snapshot_records=20,
)
IDEMPOTENT = (1, 2)
TRANSACTIONAL = (11, 12)
EPOCHS = (-1, 0, 1)
CODECS = ("none", "gzip", "lz4", "snappy", "zstd")


@dataclass
class Answer:
    """The pending answer to a producer."""

    last_offset: int
    needs: int
    """The highest offset that must be persisted before the answer."""


class NamesLife(NamesThatOutliveRecords):
    """Operates one partition; every step checks its result."""

    topic, topic_id = "flights", uuid.UUID(int=79)

    def __init__(
        self, disk: SimulatedDisk, *, is_on: bool = True, compact: bool = False, has_limits: bool = False
    ) -> None:
        super().__init__(disk, replace(CONFIG, deduplicates=is_on, compact=compact), has_limits=has_limits)
        self.answers: list[Answer] = []
        self.acknowledged_end_offset = 0
        self.values = 0
        self.is_start_promised = False
        """Whether an answer already depended on remembered names. Then the start of tracking must not be
        lost.
        """

    # --- starting

    @property
    def config(self) -> LogConfig:  # type: ignore[override]
        """Return the config with which a directory opens its logs before it knows their topics."""
        return replace(CONFIG, deduplicates=False)

    def begin(self) -> None:
        """Open the directory as a gateway does."""
        self.open()
        self.log.update_config(self.topic_config)
        self.settle()

    def start_anew(self) -> None:
        """Open the directory in a new process, after the previous one died."""
        self.storage = Storage(512, self.disk.process())
        self.directory = None
        self.begin()
        self.counts["restarts"] += 1

    def settle(self) -> None:
        """Take the recovered log as durable: it has all acknowledged batches, and lost batches never count."""
        log, history = self.log, self.history
        assert log.log_end_offset >= self.acknowledged_end_offset, "an acknowledged record is lost"
        history.cut(log.log_end_offset)
        self._loaded()
        self.answers.clear()
        assert log.log_end_offset == max(history.end_offset, log.log_start_offset)
        # a power cut may remove a new partition's directory, in which nothing was acknowledged yet
        is_promised = self.is_start_promised and self.acknowledged_end_offset > 0
        if not is_promised and DEDUPLICATION_START not in self._files():
            history.start_offset = None
        if self.topic_config.deduplicates:
            self._begin_to_remember()
        self.acknowledge()
        self.compare()

    def _loaded(self) -> None:
        self.history.loaded()
        self.active.clear()

    def _files(self) -> list[str]:
        directory = self.log.directory
        return [path.removeprefix(f"{directory}/") for path in self.disk.files(directory)]

    def _begin_to_remember(self) -> None:
        history, log = self.history, self.log
        if history.start_offset is None or history.start_offset > log.log_end_offset:
            history.start_offset = log.log_end_offset
            self.is_start_promised = False

    # --- sending

    def send(
        self,
        positions: list[tuple[int, int]],
        *,
        producer_id: int = NO_PRODUCER,
        codec: str = "none",
        epochs: tuple[int, ...] = (-1,),
    ) -> None:
        """Send a batch of (application, steps back) records: the record this many steps behind the
        application's newest one, or a record without headers.
        """
        is_transactional = producer_id in TRANSACTIONAL
        transaction_of = producer_id if is_transactional else NO_PRODUCER
        taken: dict[bytes, int] = {}
        items = []
        for number, (application, back) in enumerate(positions):
            self.values += 1
            value, key = b"%d" % self.values, b"k%d" % (self.values % 3)
            if application >= len(APPLICATIONS):
                items.append(Item(b"", 0, -1, value, key))
                continue
            name = APPLICATIONS[application]
            end = taken.get(name)
            if end is None:
                end = self.history.next_index(name, transaction_of)
            sequence_id = max(0, end - back)
            taken[name] = max(end, sequence_id + 1)
            items.append(Item(name, sequence_id, epochs[number % len(epochs)], value, key))
        self._send(items, producer_id, codec)

    def _send(self, items: list[Item], producer_id: int, codec: str) -> None:
        log, history = self.log, self.history
        if not log.record_states.names_ready and any(item.name for item in items):
            self.replay(1 << 20)
            self.compare()
        names = log.record_states.names
        if names is not None and not names.is_start_safe and any(item.name for item in items):
            self.flush()
            if not names.is_start_safe:
                # The flush of the offset from which names are tracked is under way, or has failed; the client
                # retries later.
                self.counts["start not written down"] += 1
                return
        is_transactional = producer_id in TRANSACTIONAL
        entry = log.producers.get(producer_id) if producer_id >= 0 else None
        base_sequence = -1 if producer_id < 0 else (0 if entry is None else entry.next_sequence)
        data = encode(items, producer_id, base_sequence, codec, is_transactional=is_transactional)
        is_on = self.topic_config.deduplicates
        decided = (
            history.judge(items, producer_id if is_transactional else NO_PRODUCER)
            if is_on
            else Decided(kept=list(range(len(items))))
        )
        base_offset = log.log_end_offset
        stored = StoredBatch(
            base_offset,
            base_offset + len(items) - 1,
            [StoredItem(base_offset + position, items[position]) for position in decided.kept],
            producer_id,
            base_sequence,
            is_transactional,
            counts=is_on,
        )
        is_stored = decided.refusal is None and (bool(decided.kept) or producer_id >= 0)
        if is_stored:
            history.batches.append(stored)  # even a failed append may have reached the disk completely
        before = self.remembered()
        try:
            info = log.append(data, now_ms=self.now_ms())
        except (NamesNotReady, NameLimitReached) as error:
            assert decided.refusal is None
            newcomers = decided.names.keys() - before.keys()
            if isinstance(error, NameLimitReached):
                assert self.is_refused(before, newcomers), (
                    "the batch is refused although there is room for its names"
                )
                self.counts["no room"] += 1
            elif "epoch" in str(error):
                assert max(decided.repeated.values()) >= 0, (
                    "the batch is refused although it has no new name epoch to persist"
                )
                self.counts["epochs not written down"] += 1
                history.epochs.update(decided.unheard)
            elif "other partitions" in str(error):
                assert newcomers, "the batch is refused although it has no new names"
                self.counts["partitions looked at"] += 1
                log.record_states.note_whole_topic()
            else:
                assert self.may_be_written_down_still(newcomers), (
                    "the batch is refused although no eviction of its names waits to become durable"
                )
                self.counts["forgetting"] += 1
            history.cut(base_offset)
            return
        except (NameUndecided, NameFenced) as error:
            refusal = "undecided" if isinstance(error, NameUndecided) else "fenced"
            self.counts[refusal] += 1
            if decided.refusal != refusal:
                raise AssertionError(f"the batch is refused, but the model decided {decided}") from error
            return
        self.is_start_promised = self.is_start_promised or (is_on and any(item.name for item in items))
        assert decided.refusal is None, f"the batch is accepted, but the model refuses it: {decided.refusal}"
        if is_on:
            assert not self.is_refused(before, decided.names), (
                "the batch is accepted although there is no room for its names"
            )
            self.note_evicted(before, decided.names)
            self.active.update(dict.fromkeys(decided.names, self.now_ms()))
        for name, epoch in decided.names.items():
            history.epochs[name] = max(epoch, history.epochs.get(name, -1))
        history.promised_epochs.update(decided.unheard)
        self.counts["duplicates"] += len(items) - len(decided.kept)
        self.counts["stored"] += len(decided.kept)
        needs = decided.waits_for
        if is_stored:
            assert (*info[:2], info.answer_after) == (base_offset, stored.last_offset, stored.last_offset)
            assert not info.is_duplicate
            needs = max(needs, stored.last_offset)
        else:
            assert (info.base_offset, info.is_duplicate) == (-1, True)
            assert info.answer_after < log.log_end_offset
        self._answer(Answer(info.answer_after, needs))

    def retry(self, back: int) -> None:
        """Send one of an idempotent producer's last batches again, unchanged. Its offset shows that it is a
        duplicate.
        """
        of_producers = [
            batch
            for batch in self.history.batches
            if batch.producer_id in IDEMPOTENT and batch.base_offset >= self.log.log_start_offset
        ]
        own = [batch for batch in of_producers if batch.producer_id == IDEMPOTENT[back % 2]][-5:]
        if not own:
            return
        original = own[back % len(own)]
        count = original.last_offset - original.base_offset + 1
        items = [Item(b"", 0, -1, b"again", b"k")] * count
        data = encode(items, original.producer_id, original.base_sequence, "none", is_transactional=False)
        info = self.log.append(data, now_ms=self.now_ms())
        assert info[:2] == (original.base_offset, original.last_offset)
        assert info.is_duplicate
        self._answer(Answer(info.answer_after, original.last_offset))

    def end(self, producer_id: int, *, commit: bool) -> None:
        """End a producer's transaction, if it has one."""
        base_offset = self.log.log_end_offset
        self.history.batches.append(
            StoredBatch(
                base_offset,
                base_offset,
                [],
                producer_id,
                -1,
                is_transactional=True,
                commits=commit,
                counts=self.topic_config.deduplicates,
            )
        )
        append_end_marker(self.log, producer_id, 0, commit=commit, coordinator_epoch=0, now_ms=self.now_ms())
        self.counts["commits" if commit else "aborts"] += 1

    def send_half(self, application: int) -> None:
        """Send a record with only some of its name headers."""
        name = APPLICATIONS[application % len(APPLICATIONS)]
        data = build_batch([NewRecord(b"v", headers=[("dedup.name", name)])])
        is_on, base_offset = self.topic_config.deduplicates, self.log.log_end_offset
        if not is_on:
            stored = StoredItem(base_offset, Item(b"", 0, -1, b"v", b""))
            self.history.batches.append(StoredBatch(base_offset, base_offset, [stored], counts=False))
        try:
            self.log.append(data, now_ms=self.now_ms())
        except InvalidRecord:
            assert is_on
            return
        assert not is_on

    def _answer(self, answer: Answer) -> None:
        self.answers.append(answer)
        self.acknowledge()

    def acknowledge(self) -> None:
        """Answer the producers whose records are durable."""
        high_watermark = self.log.high_watermark
        durable_end_offset = max(high_watermark, self.log.recovery_point)
        for answer in self.answers:
            if answer.last_offset < high_watermark:
                assert answer.needs < durable_end_offset, (
                    "the duplicate is acknowledged before its original is persisted"
                )
                self.acknowledged_end_offset = max(self.acknowledged_end_offset, answer.needs + 1)
                self.counts["acknowledged"] += 1
        self.answers = [answer for answer in self.answers if answer.last_offset >= high_watermark]

    # --- making durable

    def flush(self, between: Callable[[], object] = lambda: None) -> None:
        """Flush once; call `between` during the flush."""
        log = self.log
        ticket = log.prepare_flush()
        if ticket is None:
            return
        self.run_flush(ticket, between)
        self.note_written(ticket)
        self.acknowledge()

    def fail_flush(self) -> None:
        """Fail a flush after a part of it may have reached the disk, and reopen the partition."""
        rates = self.disk.plan.rates
        self.disk.plan.rates = replace(rates, sync_eio=1.0)
        try:
            self.flush()
        except StorageFailed:
            self.counts["failed flushes"] += 1
        finally:
            self.disk.plan.rates = rates
        self.recover()

    def recover(self) -> None:
        """Bring back a partition that is offline."""
        if self.log.offline:
            self.log.reopen(self.now_ms())
            self.settle()
        else:
            # a batch that was refused without taking the partition offline must not be in the log
            self.history.cut(self.log.log_end_offset)
            self.compare()

    def capture(self) -> None:
        self.log.capture_names()

    # --- turning deduplication off and on

    def toggle(self) -> None:
        is_on = not self.topic_config.deduplicates
        was_unread = not is_on and (self.was_unread or not self.log.record_states.names_ready)
        # Turning deduplication off writes a snapshot. Until it is written, the names of some records may be
        # unread.
        self.was_unread = not is_on
        self.topic_config = replace(self.topic_config, deduplicates=is_on)
        if is_on:
            self._begin_to_remember()
        self._loaded()
        self.log.update_config(self.topic_config)
        if not self.log.offline:
            self.was_unread = was_unread
        self.compare()
        self.counts["turned"] += 1

    def replay(self, max_bytes: int) -> None:
        """Replay one more part of the log for names."""
        self.log.record_states.replay_names(max_bytes, self.now_ms())

    # --- ending

    def kill(self) -> None:
        """Kill the process; the page cache stays."""
        self.disk.kill()
        self.start_anew()

    def power_cut(self, seed: int) -> None:
        self.disk.power_cut_by_seed(seed)
        self.start_anew()

    def stop(self, *, clean: bool) -> None:
        assert self.directory is not None
        if clean:
            self.flush()
        self.directory.close(clean=clean)
        self.directory = None
        self.disk.kill()
        self.start_anew()

    def lose_snapshots(self, which: int, *, is_damaged: bool) -> None:
        """Lose or damage the snapshots once per life, while the gateway is down. State that only they hold
        may then be forgotten.
        """
        if self.counts["lost snapshots"] or self.has_limits:
            # older snapshots still hold names that were evicted since
            return
        directory = self.log.directory
        self.flush()
        self.disk.kill()
        paths = [path for path in self.disk.files(directory) if path.endswith(NAMES_SUFFIX)]
        doomed = paths if which >= len(paths) else [paths[which]]
        self.disk.plan.heal()
        process = Storage(8, self.disk.process())
        for path in doomed:
            if is_damaged:
                LocalDurability(process).replace(path, self.disk.content(path)[:-1])
            else:
                process.delete(path)
                process.fsync_directory(directory)
        self.counts["lost snapshots"] += len(doomed)
        self.is_damaged = self.is_damaged or bool(doomed)
        self.start_anew()
