from __future__ import annotations

import pytest

from seqgate.log.format.records import EndMarker, NewRecord, build_batch, build_end_marker, read_end_marker


@pytest.mark.parametrize("commit", [True, False])
def test_reads_back(commit: bool) -> None:
    marker = build_end_marker(7, 3, commit=commit, coordinator_epoch=2**31 - 1, now_ms=5)
    assert read_end_marker(marker) == EndMarker(commit, 2**31 - 1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, bytes(6)),
        (bytes(3), bytes(6)),
        (bytes(4), None),
        (bytes(4), bytes(5)),
        (bytes((0, 0, 0, 2)), bytes(6)),
    ],
    ids=["no key", "short key", "no value", "short value", "another control record"],
)
def test_what_is_no_marker(key: bytes | None, value: bytes | None) -> None:
    batch = build_batch([NewRecord(value, key=key)], producer_id=7, producer_epoch=0, is_control=True)
    assert read_end_marker(batch) is None


def test_a_later_version_may_have_more() -> None:
    batch = build_batch(
        [NewRecord(bytes((0, 1, 0, 0, 0, 9)) + b"more", key=bytes((0, 1, 0, 1)) + b"more")], is_control=True
    )
    assert read_end_marker(batch) == EndMarker(True, 9)


def test_damage_is_no_marker() -> None:
    marker = build_end_marker(7, 3, commit=True, coordinator_epoch=1, now_ms=5)
    assert read_end_marker(marker[:61] + b"\xff" * (len(marker) - 61)) is None
