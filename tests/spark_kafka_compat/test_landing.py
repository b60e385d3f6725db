from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from seqgate.spark_kafka_compat import landing

LEVEL = "kafka.isolation.level"


class _Asked(Exception):
    """Raised in place of Spark's read of the source."""


@pytest.mark.parametrize(
    ("given", "level"), [({}, "read_committed"), ({LEVEL: "read_uncommitted"}, "read_uncommitted")]
)
def test_only_committed_records_are_landed_unless_the_options_say_otherwise(
    given: Mapping[str, str], level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_: object, options: Mapping[str, str], **__: object) -> None:
        raise _Asked(options[LEVEL])

    monkeypatch.setattr(landing, "source", ask)
    monkeypatch.setattr(landing, "unwatched_source", ask)
    spark = cast("Any", object())
    kept = landing.checkpoint_topics(spark, "a:1", "p", options=given)
    assert kept.options[LEVEL] == level
    for checked_by in (None, kept):
        with pytest.raises(_Asked, match=f"^{level}$"):
            landing.land(spark, "a:1", "t", "p", options=given, kept=checked_by)
