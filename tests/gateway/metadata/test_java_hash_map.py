"""The expected orders are those that OpenJDK 17 printed for `HashMap.keySet`."""

from __future__ import annotations

import pytest

from seqgate.gateway.metadata.java_hash_map import in_java_hash_map_order, java_hash_map_length, string_hash

NAMES = "ann bob cat dan eve fay gus hal ida jon kim leo max"


@pytest.mark.parametrize("capacity", [1, 5, 16])
@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (3, "ann bob cat"),
        (4, "ann dan bob cat"),
        (12, "ann dan hal bob gus eve cat ida leo jon kim fay"),
        (13, "ann gus max ida jon kim dan hal bob eve cat leo fay"),
    ],
)
def test_the_number_of_keys_decides_their_order(capacity: int, count: int, expected: str) -> None:
    assert in_java_hash_map_order(NAMES.split()[:count], string_hash, capacity) == expected.split()


@pytest.mark.parametrize(
    ("put", "expected"),
    [("BB Aa x AaAa", "BB Aa x AaAa"), ("x AaAa BBBB Aa BB AaBB", "Aa BB x AaAa BBBB AaBB")],
)
def test_keys_of_one_bucket_stay_as_they_were_put(put: str, expected: str) -> None:
    assert in_java_hash_map_order(put.split(), string_hash) == expected.split()


@pytest.mark.parametrize(
    ("count", "capacity", "expected"),
    [(0, 0, 1), (1, 1, 2), (3, 1, 4), (4, 1, 8), (7, 1, 16), (0, 5, 8), (12, 16, 16), (13, 16, 32)],
)
def test_a_table_is_never_more_than_three_quarters_full(count: int, capacity: int, expected: int) -> None:
    assert java_hash_map_length(count, capacity) == expected
