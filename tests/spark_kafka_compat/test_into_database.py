from __future__ import annotations

from typing import Any, cast

import pytest

from seqgate.spark_kafka_compat import SparkCompatError
from seqgate.spark_kafka_compat.databases import Database
from seqgate.spark_kafka_compat.into_database import (
    already_written,
    into_database,
    into_table,
    refuse_gaps,
    starting_offsets,
)
from seqgate.spark_kafka_compat.partitions import OffsetRange
from seqgate.spark_kafka_compat.pipelines import into_database as program
from seqgate.spark_kafka_compat.positions import TopicPartition
from seqgate.spark_kafka_compat.session import PositionError

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def test_partly_written_partitions_of_a_micro_batch() -> None:
    span = OffsetRange({A0: 10, A1: 0}, {A0: 20, A1: 5})
    assert already_written(span, {A0: 10, A1: 0}) == {}
    assert already_written(span, {A0: 15, A1: 0}) == {A0: 15}
    assert already_written(span, {}) == {}


def test_partly_written_new_partitions_of_a_micro_batch() -> None:
    assert already_written(OffsetRange({}, {A0: 20}), {A0: 3}) == {A0: 3}


def test_a_checkpoint_ahead_of_the_database_is_refused() -> None:
    span = OffsetRange({A0: 10}, {A0: 20})
    refuse_gaps(span, {A0: 10})
    refuse_gaps(span, {A0: 99})
    refuse_gaps(span, {})
    with pytest.raises(PositionError, match="a-0 is written up to 9, but the checkpoint continues at 10"):
        refuse_gaps(span, {A0: 9})


def test_starting_offsets_name_every_partition_that_is_read() -> None:
    positions = {A0: 3, A1: 0, TopicPartition("b", 0): 7}
    assert starting_offsets(positions, {A0: None, A1: None}) == {"a": {"0": 3, "1": 0}}


@pytest.mark.parametrize("option", ["startingOffsets", "startingTimestamp", "subscribePattern", "assign"])
def test_options_that_the_database_decides(option: str) -> None:
    with pytest.raises(SparkCompatError, match=f"{option} can't be given"):
        into_database(
            cast("Any", None),
            "127.0.0.1:1",
            "t",
            Database("sqlite:never.db"),
            pipeline="p",
            write=into_table("t"),
            options={option: "1"},
        )


def test_the_program_requires_a_database(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main(["--bootstrap", "127.0.0.1:1", "t"])
    assert "--database" in capsys.readouterr().err
