"""Records with the same layout are read like all others, wherever such a run begins, breaks and ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgate.log import InvalidRecord
from seqgate.log.format.batch_validation import plain_records, rewritten_batch, stored_records
from seqgate.log.format.named_records import NameHeaders, named_records
from seqgate.log.format.record_batch import HEADER_BYTES, parse_header
from seqgate.log.format.records import NewRecord, build_batch, iterate_records
from seqgate.seq_validator.names import NamedRecord

HEADERS = NameHeaders(b"dedup.name", b"dedup.sequence", b"dedup.epoch", 256)
LIMIT_BYTES = 1 << 20


def record(
    number: int,
    *,
    value_bytes: int = 20,
    name: bytes = b"app",
    epoch: bytes | None = None,
    other_bytes: int = 0,
) -> NewRecord:
    headers: list[tuple[str, bytes | None]] = [("dedup.name", name), ("dedup.sequence", b"%d" % number)]
    if other_bytes:
        headers.insert(0, ("other", b"o" * other_bytes))
    if epoch is not None:
        headers.append(("dedup.epoch", epoch))
    return NewRecord(b"v" * value_bytes, key=b"k", timestamp=1_000 + number % 1_000, headers=headers)


def expected(batch: bytes) -> list[NamedRecord]:
    found = []
    for each in iterate_records(batch):
        headers = dict(each.headers)
        epoch = headers.get("dedup.epoch")
        found.append(
            NamedRecord(
                each.offset,
                headers["dedup.name"] or b"",
                int(headers["dedup.sequence"] or b""),
                -1 if epoch is None else int(epoch),
            )
        )
    return found


def read(batch: bytes) -> list[NamedRecord]:
    return named_records(parse_header(batch), memoryview(batch), HEADERS, LIMIT_BYTES)


@st.composite
def runs(draw: st.DrawFn) -> list[NewRecord]:
    """Draw a few runs of records; the records of a run share a layout, and the layouts of two runs in a row
    differ.
    """
    records: list[NewRecord] = []
    number = draw(st.integers(0, 200))
    for _ in range(draw(st.integers(1, 4))):
        value_bytes = draw(st.sampled_from((0, 20, 63, 64, 200)))
        name = draw(st.sampled_from((b"app", b"other", b"ap")))
        epoch = draw(st.sampled_from((None, b"7")))
        for _ in range(draw(st.integers(1, 150))):
            records.append(record(number, value_bytes=value_bytes, name=name, epoch=epoch))
            number += draw(st.integers(1, 60)) if len(records) % 50 == 0 else 1
    return records


@settings(deadline=None)
@given(runs())
def test_runs_are_read_as_single_records_are(records: Sequence[NewRecord]) -> None:
    batch = build_batch(records)
    assert read(batch) == expected(batch)


@settings(deadline=None)
@given(runs(), st.data())
def test_damage_gives_an_error_or_what_is_there(records: Sequence[NewRecord], data: st.DataObject) -> None:
    batch = bytearray(build_batch(records))
    position = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    batch[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = read(bytes(batch))
    except InvalidRecord:
        return
    try:
        wanted = expected(bytes(batch))
    except (InvalidRecord, KeyError, ValueError):
        return
    if [each.position for each in wanted] == list(range(len(wanted))):
        assert found == wanted


@pytest.mark.parametrize("at", [5, 20, 90])
def test_a_number_that_is_too_large_is_found_in_a_run(at: int) -> None:
    numbers = [10**18 + number for number in range(100)]
    numbers[at] = 2**63
    batch = build_batch([record(number) for number in numbers])
    with pytest.raises(InvalidRecord, match="no sequence id"):
        read(batch)
    batch_header = parse_header(batch)
    lenient = named_records(batch_header, memoryview(batch), HEADERS, LIMIT_BYTES, is_strict=False)
    assert len(lenient) == 99


def test_gaps_that_compaction_left_are_kept() -> None:
    whole = build_batch([record(number) for number in range(60)])
    header = parse_header(whole)
    plain = plain_records(header, memoryview(whole), LIMIT_BYTES)
    kept = [each for each in stored_records(header, plain) if each.offset not in {30, 31, 45}]
    batch = rewritten_batch(header, plain, kept)
    assert [each.position for each in read(batch)] == [each.offset for each in kept]
    assert read(batch) == expected(batch)


def test_large_headers_are_neither_made_a_pattern_nor_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern of megabytes takes seconds to compile, and each partition keeps one set of headers."""
    monkeypatch.setattr("seqgate.log.format.named_records.read_alike", no_pattern)
    headers = NameHeaders(b"dedup.name", b"dedup.sequence", b"dedup.epoch", 256)
    batch = build_batch([record(number, other_bytes=1024) for number in range(100)])
    found = named_records(parse_header(batch), memoryview(batch), headers, LIMIT_BYTES)
    assert found == expected(batch)
    assert headers.tail is None


def no_pattern(*_: object) -> None:
    raise AssertionError("a pattern was compiled from large headers")
