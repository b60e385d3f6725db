"""Builds and reads the marker, the control record that ends a transaction in a partition.

Key: version int16 (0), type int16 (0 abort, 1 commit). Value: version int16 (0), coordinator_epoch int32. The batch around
the record has the transactional and the control flag, and no sequence. Source: Kafka's `ControlRecordType`, `EndTransactionMarker` (KIP-98).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from seqgate.log.errors import LogError
from seqgate.log.format.records import (
    NewRecord,
    build_batch,
    iterate_records,
)

if TYPE_CHECKING:
    from seqgate.log.format.record_batch import Buffer


_ABORT: Final = 0


_COMMIT: Final = 1


_VERSION: Final = 0


_KEY: Final = struct.Struct(">hh")


_VALUE: Final = struct.Struct(">hi")


class EndMarker(NamedTuple):
    """The content of a marker."""

    is_commit: bool
    coordinator_epoch: int


def build_end_marker(
    producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int, now_ms: int
) -> bytes:
    """Return the batch of one marker, at offset 0."""
    record = NewRecord(
        _VALUE.pack(_VERSION, coordinator_epoch),
        key=_KEY.pack(_VERSION, _COMMIT if commit else _ABORT),
        timestamp=now_ms,
    )
    return build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_end_marker(batch: Buffer) -> EndMarker | None:
    """Return the marker in a control batch; None when the batch holds no marker that this version knows."""
    try:
        record = next(iter(iterate_records(batch)), None)
    except LogError:
        return None
    if record is None or record.key is None or record.value is None:
        return None
    if len(record.key) < _KEY.size or len(record.value) < _VALUE.size:
        return None
    control_type = _KEY.unpack_from(record.key)[1]
    if control_type not in {_ABORT, _COMMIT}:
        return None
    return EndMarker(control_type == _COMMIT, _VALUE.unpack_from(record.value)[1])
