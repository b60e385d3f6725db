"""Values that a later release wrote are told from damage, in every kind of row."""

from __future__ import annotations

import struct
from types import ModuleType

import pytest

from seqgate.gateway.coordinator.group import records as group_records
from seqgate.gateway.coordinator.rows import NewerVersion, newer_version_in
from seqgate.gateway.coordinator.share import records as share_records
from seqgate.gateway.coordinator.transaction import records as transaction_records

NAME = struct.pack(">h", 1) + b"g"
MEMBER = NAME + NAME
OFFSET = NAME + NAME + struct.pack(">i", 0)
GROUP_KEYS = [(0, OFFSET, 4), (1, OFFSET, 4), (2, NAME, 4)]
CONSUMER_KEYS = [(kind, MEMBER if kind in {5, 7, 8} else NAME, 0) for kind in (3, 5, 6, 7, 8)]
SHARE_KEYS = [(kind, MEMBER if kind in {10, 13, 14} else NAME, 0) for kind in (10, 11, 12, 13, 14, 15)]
STATE_KEYS = [(kind, NAME + bytes(16) + struct.pack(">i", 0), 0) for kind in (0, 1)]
ROWS = [
    *((group_records, *row) for row in (*GROUP_KEYS, *CONSUMER_KEYS, *SHARE_KEYS)),
    *((share_records, *row) for row in STATE_KEYS),
    (transaction_records, 0, NAME, 1),
]


@pytest.mark.parametrize(("codec", "kind", "rest", "newest"), ROWS)
def test_every_kind_of_value_distinguishes_a_later_version_from_damage(
    codec: ModuleType, kind: int, rest: bytes, newest: int
) -> None:
    key = struct.pack(">h", kind) + rest
    with pytest.raises(ValueError, match=f"version {newest + 1}; this program reads") as later:
        codec.decode(key, struct.pack(">h", newest + 1) + bytes(60))
    found = newer_version_in(later.value)
    assert isinstance(found, NewerVersion)
    with pytest.raises(ValueError) as damaged:
        codec.decode(key, struct.pack(">h", -1) + bytes(60))
    assert newer_version_in(damaged.value) is None
