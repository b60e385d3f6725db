"""A size is shown in its largest unit."""

from __future__ import annotations

import pytest

from seqgate.gateway.sizes import size_in_words


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (64 << 20, "64 MiB"), (5 << 40, "5 TiB")],
)
def test_a_size_in_words(size_bytes: int, expected: str) -> None:
    assert size_in_words(size_bytes) == expected
