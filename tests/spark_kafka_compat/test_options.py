from __future__ import annotations

import pytest

from seqgate.spark_kafka_compat import OPTIONS, UnknownOptionError, Use, checked_options


def test_each_option_is_listed_once() -> None:
    names = [option.name.lower() for option in OPTIONS]
    assert len(names) == len(set(names))


def test_values_become_texts_that_spark_parses() -> None:
    given = {"STARTINGOFFSETS": {"t": {"0": -2}}, "failOnDataLoss": False, "minPartitions": 3}
    assert checked_options(Use.BATCH_READ, given) == {
        "startingOffsets": '{"t": {"0": -2}}',
        "failOnDataLoss": "false",
        "minPartitions": "3",
    }


def test_client_settings_pass_through() -> None:
    given = {"kafka.max.poll.records": 7, "Kafka.ssl.truststore.location": "/Case/Kept"}
    assert checked_options(Use.STREAM_WRITE, given) == {
        "kafka.max.poll.records": "7",
        "kafka.ssl.truststore.location": "/Case/Kept",
    }


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("failOndataLos", "failOnDataLoss"),
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("fetchOffset.retries", "fetchOffset.numRetries"),
    ],
)
def test_a_misspelt_name_suggests_the_nearest_option(wrong: str, nearest: str) -> None:
    with pytest.raises(UnknownOptionError, match=rf"no option '{wrong}' \(nearest: {nearest}\)"):
        checked_options(Use.STREAM_READ, {wrong: "x"})


def test_a_name_without_a_similar_option_gets_no_suggestion() -> None:
    with pytest.raises(UnknownOptionError, match=r"no option 'zzz'\.$"):
        checked_options(Use.BATCH_READ, {"zzz": "1"})


@pytest.mark.parametrize(
    ("use", "name", "use_name"),
    [
        (Use.BATCH_READ, "maxOffsetsPerTrigger", "a batch read"),
        (Use.STREAM_READ, "endingTimestamp", "a streaming read"),
        (Use.BATCH_WRITE, "subscribe", "a batch write"),
        (Use.STREAM_WRITE, "failOnDataLoss", "a streaming write"),
    ],
)
def test_an_option_of_another_use_is_refused(use: Use, name: str, use_name: str) -> None:
    with pytest.raises(UnknownOptionError, match=f"{name} does not apply to {use_name}"):
        checked_options(use, {name: "1"})
