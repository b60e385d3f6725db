from __future__ import annotations

import struct

import crc32c
import pytest

from seqgate.seq_validator import ACCEPTED, CorruptSnapshot, Duplicate, ProducerTable, newer_snapshot_version
from seqgate.seq_validator.entry import MAX_SEQUENCE
from tests.seq_validator.candidate import Candidate

BATCHES = [Candidate((MAX_SEQUENCE - 7 + n * 3) % 2**31, 3, max_timestamp=n) for n in range(5)]


def table_with_window() -> ProducerTable:
    table = ProducerTable()
    for n, batch in enumerate(BATCHES):
        table.update(batch, n * 3, 500 + n)
    table.update(Candidate(40, producer_id=2**62, producer_epoch=3), 15, 600)
    return table


def sealed(body: bytes) -> bytes:
    return body + struct.pack(">I", crc32c.crc32c(body))


def test_a_snapshot_restores_the_whole_window() -> None:
    restored, log_end_offset = ProducerTable.restore(table_with_window().snapshot(16))
    assert log_end_offset == 16
    assert [entry.producer_id for entry in restored] == [7, 2**62]
    assert [entry.last_active_ms for entry in restored] == [504, 600]
    for n, batch in enumerate(BATCHES):
        assert restored.judge(batch, 0) == Duplicate(n * 3, n * 3 + 2, n)
    assert restored.judge(Candidate(41, producer_id=2**62, producer_epoch=3), 0) is ACCEPTED
    assert restored.snapshot(16) == table_with_window().snapshot(16)


def test_a_narrower_window_restores_the_newest_batches() -> None:
    restored, _ = ProducerTable.restore(table_with_window().snapshot(16), retained_batches=2)
    entry = restored.get(7)
    assert entry is not None
    assert [batch.base_offset for batch in entry.batches] == [9, 12]


def test_a_snapshot_restores_the_transaction_fields() -> None:
    table = table_with_window()
    table.end_transaction(7, 0, coordinator_epoch=5, offset=16, timestamp=700, now_ms=601)
    table.update(Candidate(list(table)[-1].next_sequence), 17, 602)
    table.continue_transaction(7, 17)
    table.end_transaction(8, 2, coordinator_epoch=6, offset=18, timestamp=701, now_ms=603)
    restored, _ = ProducerTable.restore(table.snapshot(19))
    with_transaction, marked = restored.get(7), restored.get(8)
    assert with_transaction is not None
    assert marked is not None
    assert (with_transaction.coordinator_epoch, with_transaction.current_transaction_first_offset) == (5, 17)
    assert (with_transaction.marker_offset, with_transaction.marker_timestamp) == (16, 700)
    assert (marked.producer_epoch, list(marked.batches), marked.next_sequence) == (2, [], 0)
    assert (marked.coordinator_epoch, marked.last_timestamp, marked.has_open_transaction) == (6, 701, False)
    assert restored.snapshot(19) == table.snapshot(19)


def test_a_snapshot_of_version_1_is_read() -> None:
    entry = struct.pack(">qhqiq", 7, 3, 500, -1, -1)
    batch = struct.pack(">iiqqq", 4, 5, 10, 11, 900)
    old = b"SQPS" + struct.pack(">hqi", 1, 12, 1) + entry + struct.pack(">i", 1) + batch
    restored, log_end_offset = ProducerTable.restore(sealed(old))
    assert log_end_offset == 12
    assert restored.judge(Candidate(4, 2, producer_epoch=3), 0) == Duplicate(10, 11, 900)
    (known,) = restored
    assert (known.last_timestamp, known.last_offset, known.has_open_transaction) == (900, 11, False)


def test_an_empty_table_has_a_snapshot() -> None:
    restored, log_end_offset = ProducerTable.restore(ProducerTable().snapshot(9))
    assert (len(restored), log_end_offset) == (0, 9)


def test_every_cut_is_detected() -> None:
    data = table_with_window().snapshot(16)
    for length in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            ProducerTable.restore(data[:length])


def test_every_flipped_bit_is_detected() -> None:
    data = table_with_window().snapshot(16)
    for position in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptSnapshot):
            ProducerTable.restore(bytes(damaged))


def test_bytes_after_the_end_are_detected() -> None:
    with pytest.raises(CorruptSnapshot, match="damaged"):
        ProducerTable.restore(table_with_window().snapshot(16) + b"\0")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "cut short: it has 0 bytes"),
        (sealed(b"ELSE" + struct.pack(">hqi", 1, 0, 0)), "no producer snapshot"),
        (sealed(b"SQPS" + struct.pack(">hqi", 3, 0, 0)), "version 3; this program reads versions 1 to 2"),
        (sealed(b"SQPS" + struct.pack(">hqi", 0, 0, 0)), "version 0"),
        (b"SQPS" + struct.pack(">hqiI", 1, 0, 0, 1), "CRC-32C"),
        (sealed(b"SQPS" + struct.pack(">hqi", 1, 0, 1)), "counts do not match"),
        (sealed(b"SQPS" + struct.pack(">hqi", 1, 0, -1)), "counts do not match"),
        (sealed(b"SQPS" + struct.pack(">hqiq", 1, 0, 0, 0)), "counts do not match"),
        (
            sealed(b"SQPS" + struct.pack(">hqiqhqiqi", 1, 0, 1, 5, 0, 0, -1, -1, 0)),
            "producer 5 has 0 batches",
        ),
        (
            sealed(b"SQPS" + struct.pack(">hqiqhqiqqqi", 2, 0, 1, 5, 0, 0, -1, -1, -1, -1, 0)),
            "producer 5 has 0 batches",
        ),
        (
            sealed(b"SQPS" + struct.pack(">hqiqhqiqqqi", 2, 0, 1, 5, 0, 0, -1, -1, 9, 9, -1)),
            "producer 5 has -1 batches",
        ),
        (sealed(b"SQPS" + struct.pack(">hqiqhqiqi", 1, 0, 1, 5, 0, 0, -1, -1, 1)), "counts do not match"),
    ],
)
def test_each_damage_has_its_own_message(data: bytes, sentence: str) -> None:
    with pytest.raises(CorruptSnapshot, match=sentence):
        ProducerTable.restore(data)


@pytest.mark.parametrize("version", [3, 2**15 - 1])
def test_a_later_version_is_not_taken_for_damage(version: int) -> None:
    data = bytearray(table_with_window().snapshot(16)[:-4])
    struct.pack_into(">h", data, 4, version)
    assert newer_snapshot_version(sealed(bytes(data))) == version
    assert newer_snapshot_version(sealed(bytes(data) + b"more of it")) == version
    assert newer_snapshot_version(bytes(data) + bytes(4)) is None


@pytest.mark.parametrize("data", [b"", b"SQPS", b"SQPS\0\3", sealed(b"ELSE\0\3"), sealed(b"SQPS\0\2")])
def test_bytes_of_no_later_version_give_none(data: bytes) -> None:
    assert newer_snapshot_version(data) is None
