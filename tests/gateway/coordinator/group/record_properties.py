"""Properties that every kind of record in `__consumer_offsets` must have."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from hypothesis import strategies as st

from seqgate.gateway.coordinator.group.records import GroupRecord, UnreadableRecord, decode, encode


def check_cut(record: GroupRecord, data: st.DataObject) -> None:
    """Check that a truncated value is refused."""
    key, value = encode(record)
    if value is None:
        return
    size = data.draw(st.integers(0, len(value) - 1))
    try:
        decode(key, value[:size])
    except UnreadableRecord:
        return
    assert size >= len(value) - 1, "only the tags at the end may be cut unnoticed"


def check_value(kind: int, names: Sequence[str], value: bytes) -> None:
    """Check that arbitrary bytes after a valid key are decoded or refused."""
    key = kind.to_bytes(2, "big")
    for name in names:
        raw = name.encode()
        key += len(raw).to_bytes(2, "big") + raw
    for content in (value, b"\0\0" + value):
        with contextlib.suppress(UnreadableRecord):
            decode(key, content)


def check_key(kind: int, rest: bytes, value: bytes | None) -> None:
    """Check that arbitrary bytes of a key are decoded or refused."""
    with contextlib.suppress(UnreadableRecord):
        decode(kind.to_bytes(2, "big") + rest, value)
