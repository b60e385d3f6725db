"""Checks a partition after a crash: every batch from the segment of the recovery point on.

Above the recovery point the log ends before the first unsound batch: a write that the crash tore. Below the
recovery point all batches were durable, so damaged bytes are kept, and their offsets are never assigned
again: see `seqgate.log.segments.damage`. Source: Kafka's `LogSegment.recover`, which cuts in both cases,
because other replicas have the lost batches.

A check keeps the bytes that it cuts off the end of a log, if sound batches are among them. A crash
may tear the last write, and may lose an earlier page of several writes whose later pages reached the disk.
Damage at rest above the recovery point looks the same, and then acknowledged batches lie behind it. Nothing
tells the two apart for sure. So the log ends before the damage, as after a torn write, and the bytes stay in
a file beside the segment, for a person to decide.

`<20 digits>.log.<position>.<time>.cut`: the segment's bytes from the position on, cut at the time (ms).
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

from seqgate.log.errors import CorruptRecord
from seqgate.log.files.checkpoints import encode_leader_epochs
from seqgate.log.files.file_names import LEADER_EPOCHS, OFFSET_INDEX_SUFFIX, offset_name
from seqgate.log.files.storage import DataFile
from seqgate.log.format.record_batch import CONTROL_FLAG
from seqgate.log.segments.damage import CutBytes, DamagedRange
from seqgate.log.segments.scan import EVERYWHERE, SegmentScan
from seqgate.log.segments.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seqgate.log.recovery.load import Listing

_logger = logging.getLogger(__name__)

_COMPARED_AT_ONCE_BYTES: Final = 1 << 20


class Checking:
    """The check of one partition. Afterwards `listing` has only the segments that stay."""

    def __init__(self, listing: Listing, recovery_point: int) -> None:
        """Check the segments, cut off torn batches, persist the rest. Raises OSError, IncompatibleFormat."""
        self._listing = listing
        self._storage = listing.storage
        self._durability = listing.environment.durability
        self._recovery_point = recovery_point
        # Below this offset compaction may have removed offsets.
        self._may_lack = EVERYWHERE if listing.environment.recovery_points_lost else recovery_point
        self.bytes_cut = 0
        """The bytes that were cut off at the end."""
        self._found_damage = False
        self.log_end_offset = self._check()

    def _check(self) -> int:
        listing, segments = self._listing, self._listing.segments
        bases = [segment.base_offset for segment in segments]
        # A segment that ends at the recovery point is checked too, because its indexes were written later.
        first = max(0, bisect_left(bases, self._recovery_point) - 1)
        # A segment without its index may lack that of aborted transactions, too, which nobody would miss.
        names = [offset_name(base, OFFSET_INDEX_SUFFIX) for base in bases[:first]]
        first = next((number for number, name in enumerate(names) if name not in listing.files), first)
        if listing.environment.damage.is_lost:
            first = 0
        if listing.saved_epochs is None:
            self._read_leader_epochs(segments[:first])
        log_end_offset = self._check_from(first)
        if first and self._found_damage:
            # This disk loses durable data, so the earlier segments are checked too.
            log_end_offset = self._check_from(0)
        # Persist the damaged ranges before batches are written after them. Otherwise a later check could not
        # tell that bytes are missing at the end of a segment.
        damage = [found for segment in segments for found in segment.damage]
        listing.environment.damage.note(listing.directory, damage, is_durable=True)
        if segments and _ends_damaged(segments[-1]):
            self._begin_behind(log_end_offset)
        if not segments and log_end_offset < self._recovery_point:
            _logger.error(
                "%s has no segment, but was durable up to offset %d: the log continues there",
                listing.directory,
                self._recovery_point,
            )
            log_end_offset = self._recovery_point
        listing.leader_epochs.truncate(log_end_offset)
        if listing.leader_epochs.entries() != (listing.saved_epochs or []):
            path = f"{listing.directory}/{LEADER_EPOCHS}"
            self._durability.replace(path, encode_leader_epochs(listing.leader_epochs.entries()))
        self._durability.sync(directories=[listing.directory])
        return log_end_offset

    def _check_from(self, first: int) -> int:
        """Check from segment `first` on, remove those after a cut or gap. Return the log end offset."""
        segments = self._listing.segments
        next_offset = segments[first].base_offset if segments else 0
        # Compaction may have removed the records with which durable epochs began.
        self._listing.leader_epochs.truncate(max(next_offset, self._recovery_point))
        touched: list[str] = []
        for index in range(first, len(segments)):
            segment = segments[index]
            if segment.base_offset < next_offset or self._may_lack <= next_offset < segment.base_offset:
                # Batches before this segment are lost, so later batches can't keep their order.
                self._drop_segments_from(index)
                break
            file_size, is_last = segment.size_bytes, index + 1 == len(segments)
            next_base = EVERYWHERE if is_last else segments[index + 1].base_offset
            next_offset = self._check_segment(segment, max(next_offset, segment.base_offset), next_base)
            self._cut(segment, file_size, next_offset)
            if not is_last:
                touched += segment.write_indexes()
                segment.become_closed()
            if segment.size_bytes < file_size:
                self._drop_segments_from(index + 1)
                break
        self._durability.sync(paths=touched)
        return next_offset

    def _check_segment(self, segment: Segment, next_offset: int, next_base: int) -> int:
        """Fold in the segment's sound batches, set its size to their end. Return the offset after."""
        listing = self._listing
        # The check must read the bytes that are on the disk, not what only the page cache has.
        with self._storage.descriptors.pinned(segment.file):
            self._durability.settle(segment.file)
        known = {found.position: found for found in segment.damage}
        scan = SegmentScan(
            segment.read_at,
            segment.file.path,
            segment.size_bytes,
            segment.base_offset,
            next_offset=next_offset,
            kept_below=self._recovery_point,
            gaps_below=self._may_lack,
            limit=next_base if next_base <= self._recovery_point else EVERYWHERE,
        )
        segment.start_over()
        if segment.aborts.has_any:
            listing.doubted.add(segment.base_offset)
        damage: list[DamagedRange] = []
        appended, interval_bytes = segment.appended, listing.config.index_interval_bytes
        leader_epochs = listing.leader_epochs
        latest_epoch = leader_epochs.latest
        for part in scan:
            if isinstance(part, DamagedRange):
                damage.append(part)
                segment.size_bytes += part.size_bytes
                listing.doubted.add(segment.base_offset)
                continue
            _, batch = part
            base_offset = batch.base_offset
            appended(batch, base_offset + batch.last_offset_delta, interval_bytes)
            if batch.attributes & CONTROL_FLAG:
                listing.doubted.add(segment.base_offset)
            if batch.partition_leader_epoch > latest_epoch:
                leader_epochs.assign(batch.partition_leader_epoch, base_offset)
                latest_epoch = leader_epochs.latest
        next_offset = scan.next_offset
        missing = scan.missing() if next_base == EVERYWHERE else known.get(scan.end)
        if missing is not None:
            damage.append(missing)
            next_offset = missing.end_offset
        self._note(segment, damage, known)
        return next_offset

    def _note(self, segment: Segment, damage: Sequence[DamagedRange], known: dict[int, DamagedRange]) -> None:
        """Set the segment's damaged ranges, and keep the findings about ranges that were known before."""
        noted = []
        for found in damage:
            earlier = known.get(found.position)
            if earlier is None:
                segment.log_damage(found)
                self._found_damage = True
                noted.append(found)
            else:
                noted.append(
                    found._replace(
                        is_state_unknown=earlier.is_state_unknown, undecided_from=earlier.undecided_from
                    )
                )
        segment.damage = tuple(noted)

    def _begin_behind(self, offset: int) -> None:
        """Begin a segment after one that ends in damage, behind which no scan could find sound batches."""
        listing = self._listing
        closing = listing.segments[-1]
        self._durability.sync(paths=closing.write_indexes())
        closing.become_closed()
        segment = Segment(listing.environment, listing.directory, offset, 0, listing.now_ms)
        self._storage.create(segment.file)
        listing.segments.append(segment)

    def _read_leader_epochs(self, segments: Sequence[Segment]) -> None:
        """Read the leader epochs of durable segments from their batches, as the checkpoint is missing."""
        for segment in segments:
            try:
                for _, batch in segment.batches(0, segment.size_bytes):
                    self._listing.leader_epochs.assign(batch.partition_leader_epoch, batch.base_offset)
            except CorruptRecord as error:
                _logger.error("leader epochs may be missing: %s", error)  # noqa: TRY400 - needs no traceback

    def _cut(self, segment: Segment, file_size: int, next_offset: int) -> None:
        if segment.size_bytes < file_size:
            self._keep(segment, segment.size_bytes, file_size, next_offset)
            self.bytes_cut += file_size - segment.size_bytes
            _logger.warning(
                "%s: cut off %d bytes of torn batches at position %d",
                segment.file.path,
                file_size - segment.size_bytes,
                segment.size_bytes,
            )
            self._storage.truncate(segment.file, segment.size_bytes)
            with self._storage.descriptors.pinned(segment.file):
                self._durability.sync(data=[segment.file])

    def _keep(self, segment: Segment, position: int, end: int, next_offset: int) -> None:
        """Copy the bytes between two positions of a segment file to a durable file, if a sound batch is among
        them, and register the file. Raises OSError.

        Call this before the bytes are cut off; bytes that are kept already are not kept again. `next_offset`
        is the offset that would follow at `position`.
        """
        found = _sound_batches(segment, position, end, next_offset)
        if found is None:
            return
        listing, storage = self._listing, self._storage
        known = listing.environment.damage.cut().get(listing.directory, ())
        if any(self._has_kept(each, segment, position, end) for each in known):
            return
        kept = DataFile(f"{segment.file.path}.{position}.{listing.now_ms}{CUT_SUFFIX}")
        storage.create(kept)
        try:
            with storage.descriptors.pinned(kept):
                storage.copy(segment.file, position, end, kept, 0)
                self._durability.sync(data=[kept], directories=[listing.directory])
        finally:
            storage.descriptors.release(kept)
        name, size_bytes = kept.path.rpartition("/")[2], end - position
        listing.environment.damage.note_cut(
            listing.directory,
            CutBytes(name, size_bytes, found.records, found.first_offset, found.last_offset),
        )
        _logger.error(
            "%s: the %d bytes from position %d on are cut off, because the batch there is damaged, but %d "
            "sound batches with %d records (offsets %d to %d) follow; if they were acknowledged, damage has "
            "lost them, not the crash; the bytes are kept in %s",
            segment.file.path,
            size_bytes,
            position,
            found.batches,
            found.records,
            found.first_offset,
            found.last_offset,
            kept.path,
        )

    def _has_kept(self, known: CutBytes, segment: Segment, position: int, end: int) -> bool:
        """Return whether a start has kept these bytes, and died before it cut them off. Raises OSError."""
        path = f"{self._listing.directory}/{known.file_name}"
        is_of_place = path.startswith(f"{segment.file.path}.{position}.")
        if not is_of_place or known.size_bytes != end - position or not self._storage.exists(path):
            return False
        # A later crash may have torn other batches at the same place.
        return all(
            segment.read_at(start, min(_COMPARED_AT_ONCE_BYTES, end - start))
            == self._storage.read_by_name(path, _COMPARED_AT_ONCE_BYTES, start - position)
            for start in range(position, end, _COMPARED_AT_ONCE_BYTES)
        )

    def _drop_segments_from(self, index: int) -> None:
        segments = self._listing.segments
        for segment in segments[index:]:
            _logger.warning("%s is removed: the log ends before it", segment.file.path)
            self._keep(segment, 0, segment.size_bytes, segment.base_offset)
            self.bytes_cut += segment.size_bytes
            self._listing.remove(segment)
        del segments[index:]


def _ends_damaged(segment: Segment) -> bool:
    if not segment.damage:
        return False
    last = segment.damage[-1]
    return last.position + last.size_bytes == segment.size_bytes


CUT_SUFFIX: Final = ".cut"


class _Sound(NamedTuple):
    """The sound batches among bytes that are about to be cut off."""

    batches: int
    records: int
    first_offset: int
    last_offset: int


def _sound_batches(segment: Segment, position: int, end: int, next_offset: int) -> _Sound | None:
    """Return the sound batches between two positions, found as behind damage; None without any."""
    scan = SegmentScan(
        segment.read_at,
        segment.file.path,
        end,
        segment.base_offset,
        next_offset=next_offset,
        kept_below=EVERYWHERE,
    )
    scan.position = position
    found: _Sound | None = None
    for part in scan:
        if isinstance(part, DamagedRange):
            continue
        batch = part[1]
        before = found or _Sound(0, 0, batch.base_offset, 0)
        found = before._replace(
            batches=before.batches + 1,
            records=before.records + batch.record_count,
            last_offset=batch.last_offset,
        )
    return found
