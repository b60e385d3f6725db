from __future__ import annotations

import struct

import crc32c
import pytest

from seq_validator import ACCEPTED, MAX_SEQUENCE, CorruptSnapshot, Duplicate, ProducerTable
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


def test_the_whole_window_comes_back() -> None:
    restored, log_end_offset = ProducerTable.restore(table_with_window().snapshot(16))
    assert log_end_offset == 16
    assert [entry.producer_id for entry in restored] == [7, 2**62]
    assert [entry.last_active_ms for entry in restored] == [504, 600]
    for n, batch in enumerate(BATCHES):
        assert restored.judge(batch, 0) == Duplicate(n * 3, n * 3 + 2, n)
    assert restored.judge(Candidate(41, producer_id=2**62, producer_epoch=3), 0) is ACCEPTED
    assert restored.snapshot(16) == table_with_window().snapshot(16)


def test_a_narrower_window_keeps_the_newest() -> None:
    restored, _ = ProducerTable.restore(table_with_window().snapshot(16), retained_batches=2)
    entry = restored.get(7)
    assert entry is not None
    assert [batch.base_offset for batch in entry.batches] == [9, 12]


def test_transaction_fields_come_back() -> None:
    table = table_with_window()
    entry = table.longest_idle()
    entry.coordinator_epoch, entry.current_transaction_first_offset = 5, 12
    restored, _ = ProducerTable.restore(table.snapshot(16))
    assert restored.longest_idle().coordinator_epoch == 5
    assert restored.longest_idle().current_transaction_first_offset == 12


def test_an_empty_table_has_a_snapshot() -> None:
    restored, log_end_offset = ProducerTable.restore(ProducerTable().snapshot(9))
    assert (len(restored), log_end_offset) == (0, 9)


def test_every_cut_is_noticed() -> None:
    data = table_with_window().snapshot(16)
    for length in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            ProducerTable.restore(data[:length])


def test_every_flipped_bit_is_noticed() -> None:
    data = table_with_window().snapshot(16)
    for position in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptSnapshot):
            ProducerTable.restore(bytes(damaged))


def test_what_follows_the_end_is_noticed() -> None:
    with pytest.raises(CorruptSnapshot, match="damaged"):
        ProducerTable.restore(table_with_window().snapshot(16) + b"\0")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "cut short: 0 bytes"),
        (sealed(b"ELSE" + struct.pack(">hqi", 1, 0, 0)), "no producer snapshot"),
        (sealed(b"SQPS" + struct.pack(">hqi", 2, 0, 0)), "version 2; this program reads version 1"),
        (sealed(b"SQPS" + struct.pack(">hqi", 0, 0, 0)), "version 0"),
        (b"SQPS" + struct.pack(">hqiI", 1, 0, 0, 1), "CRC-32C"),
        (sealed(b"SQPS" + struct.pack(">hqi", 1, 0, 1)), "counts do not fit"),
        (sealed(b"SQPS" + struct.pack(">hqi", 1, 0, -1)), "counts do not fit"),
        (sealed(b"SQPS" + struct.pack(">hqiq", 1, 0, 0, 0)), "counts do not fit"),
        (
            sealed(b"SQPS" + struct.pack(">hqiqhqiqi", 1, 0, 1, 5, 0, 0, -1, -1, 0)),
            "producer 5 has 0 batches",
        ),
        (sealed(b"SQPS" + struct.pack(">hqiqhqiqi", 1, 0, 1, 5, 0, 0, -1, -1, 1)), "counts do not fit"),
    ],
)
def test_each_damage_is_told_in_a_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(CorruptSnapshot, match=sentence):
        ProducerTable.restore(data)
