from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from seqgate.spark_kafka_compat import SparkCompatError, landing

LEVEL = "kafka.isolation.level"


class _Files:
    def __init__(self, **names: Sequence[str]) -> None:
        self._names = names

    def names(self, folder: str) -> Sequence[str]:
        return self._names.get(folder.rpartition("/")[2], ())


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


@pytest.mark.parametrize(
    ("written", "begun", "is_refused"),
    [
        ((), (), False),
        (("8", "9.compact", ".9.compact.crc", "_tmp"), ("8", "9"), False),
        (("8", "9.compact"), ("9", "10"), False),
        (("8", "9.compact"), ("7", "8"), True),
        (("0",), (), True),
    ],
)
def test_files_ahead_of_the_checkpoint_are_refused(
    written: Sequence[str], begun: Sequence[str], is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = landing.checkpoint_topics(cast("Any", object()), "a:1", "p")
    kept._files = cast("Any", _Files(_spark_metadata=written, offsets=begun))

    def check_start(_topics: object) -> None:
        raise _Asked

    monkeypatch.setattr(kept, "check_start", check_start)
    monkeypatch.setattr(landing, "unwatched_source", lambda *_, **__: None)
    with pytest.raises(SparkCompatError if is_refused else _Asked):
        landing.land(cast("Any", object()), "a:1", "t", "p", kept=kept)
