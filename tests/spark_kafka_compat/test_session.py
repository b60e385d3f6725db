from __future__ import annotations

import pytest

from seqgate.spark_kafka_compat.session import java_major_version


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023', 21),
        ("nothing of the kind", None),
    ],
)
def test_java_versions_are_parsed(text: str, major: int | None) -> None:
    assert java_major_version(text) == major
