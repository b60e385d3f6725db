"""Tests of the comparison itself: it reports nothing where answers agree, and every difference otherwise."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.compat.differential import scenarios
from tests.compat.differential.compare import MISSING, differences
from tests.compat.differential.known_differences import KnownDifference
from tests.compat.differential.peer import Exchange, Transcript
from tests.compat.differential.scenario import SCENARIOS
from tests.compat.differential.verdict import complaints, expect_agreement
from tests.support.batches import Batch, records
from tests.support.kafka_peer import KafkaPeer
from tests.support.wire import Plain

assert scenarios.__all__

# One scenario per theme. Comparing Kafka with itself must show nothing; otherwise the normaliser misses a
# field.
AGAINST_ITSELF = (
    "produce.log_append_time",
    "produce.every_version[v13]",
    "sequence.idempotent_session",
    "metadata.by_id_and_name[v13]",
    "metadata.describe_all_topic_partitions",
    "offset_delete.of_a_simple_group",
    "offsets.fetch[v10]",
    "list_offsets.after_delete_records",
    "fetch.session_with_errors[v13]",
    "topics.create[v7]",
    "topics.describe_log_dirs[v5]",
    "configs.incremental[v1]",
    "group_admin.list_groups[v5]",
    "group_rebalance.static_members[v9]",
    "groups.life[v9]",
    "init_producer_id.every_version[v5]",
    "share_acknowledge.one_type_for_each",
    "share_fetch.life[v2]",
    "share_groups.life",
    "share_offsets.alter_another_topic",
    "frames.bodies[array of -1]",
)


@pytest.mark.parametrize("name", AGAINST_ITSELF)
def test_kafka_agrees_with_itself(name: str, kafka: KafkaPeer) -> None:
    scenario = SCENARIOS[name]
    once, again = scenario.run(kafka.bootstrap, "first"), scenario.run(kafka.bootstrap, "other")
    assert [str(item) for item in differences(once, again)] == []


def _transcript(
    prefix: str = "token-", *, topic_id: str = "id-1", port: int = 9092, producer_id: int = 7
) -> Transcript:
    """Return a transcript that a correct endpoint could produce, with every kind of value that is its own."""
    batch = Batch(records(3)).of(producer_id, 0, 0)
    fetched: Plain = {
        "throttle_time": port % 7,
        "responses": [
            {
                "topic": f"{prefix}t",
                "topic_id": topic_id,
                "partitions": [
                    {"partition_index": 0, "error_code": 0, "high_watermark": 3, "records": batch.encode()},
                    {"partition_index": 1, "error_code": 1, "high_watermark": -1, "records": b""},
                ],
            }
        ],
    }
    cluster: Plain = {
        "brokers": [{"node_id": port, "host": "127.0.0.1", "port": port}],
        "controller_id": port,
        "cluster_id": str(port),
        "error_message": None,
    }
    exchanges = [
        Exchange("init_producer_id v5", {}, answer={"producer_id": producer_id, "producer_epoch": 0}),
        Exchange("metadata v12", {}, answer=cluster),
        Exchange("fetch v12", {}, answer=fetched),
        Exchange("fetch v12", {}, instead="the connection was closed"),
    ]
    return Transcript(prefix, exchanges, {topic_id: "t"}, [producer_id])


def test_what_belongs_to_the_endpoint_is_no_difference() -> None:
    one = _transcript()
    two = _transcript("tokem-", topic_id="id-2", port=12_345, producer_id=4_000)
    assert differences(one, two) == []


def _first_partition(transcript: Transcript) -> Plain:
    answer = transcript.exchanges[2].answer
    assert answer is not None
    partition: Plain = answer["responses"][0]["partitions"][0]
    return partition


def _alter_error(transcript: Transcript) -> None:
    _first_partition(transcript)["error_code"] = 3


def _alter_type(transcript: Transcript) -> None:
    _first_partition(transcript)["high_watermark"] = "3"


def _drop_field(transcript: Transcript) -> None:
    del _first_partition(transcript)["high_watermark"]


def _alter_records(transcript: Transcript) -> None:
    partition = _first_partition(transcript)
    partition["records"] = partition["records"][:-4] + b"!!!!"


def _cut_records(transcript: Transcript) -> None:
    partition = _first_partition(transcript)
    partition["records"] = partition["records"][:-4]


def _other_controller(transcript: Transcript) -> None:
    (transcript.exchanges[1].answer or {})["controller_id"] = 5


def _lose_partition(transcript: Transcript) -> None:
    (transcript.exchanges[2].answer or {})["responses"][0]["partitions"].pop()


def _lose_exchange(transcript: Transcript) -> None:
    transcript.exchanges.pop()


def _answer_instead_of_closing(transcript: Transcript) -> None:
    transcript.exchanges[3] = replace(transcript.exchanges[3], answer={"error_code": 0}, instead=None)


def _text_instead_of_null(transcript: Transcript) -> None:
    (transcript.exchanges[1].answer or {})["error_message"] = "oh"


PLANTED: dict[str, tuple[Callable[[Transcript], None], str]] = {
    "error code": (_alter_error, "3.responses.0.partitions.0.error_code"),
    "type": (_alter_type, "3.responses.0.partitions.0.high_watermark"),
    "missing field": (_drop_field, "3.responses.0.partitions.0.high_watermark"),
    "record bytes": (_alter_records, "3.responses.0.partitions.0.records.batches.0.crc_is_right"),
    "cut records": (_cut_records, "3.responses.0.partitions.0.records.bytes of a cut batch"),
    "controller": (_other_controller, "2.controller_id"),
    "missing partition": (_lose_partition, "3.responses.0.partitions.1"),
    "missing exchange": (_lose_exchange, "4"),
    "answered": (_answer_instead_of_closing, "4.error_code"),
    "message": (_text_instead_of_null, "2.error_message"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_found(name: str) -> None:
    alter, path = PLANTED[name]
    right, altered = _transcript(), copy.deepcopy(_transcript())
    alter(altered)
    found = differences(right, altered)
    assert path in [item.path for item in found]
    assert complaints("theme.some", found, ())


def _stop(transcript: Transcript) -> None:
    transcript.exchanges.append(Exchange("the end", None, instead="no leader came", is_in_vain=True))


def _wait(transcript: Transcript) -> None:
    transcript.exchanges[1] = Exchange("metadata v12, awaited", {}, instead="never came", is_in_vain=True)


@pytest.mark.parametrize("in_vain", [_stop, _wait])
def test_a_wait_in_vain_is_no_agreement(in_vain: Callable[[Transcript], None]) -> None:
    kafka, gateway = _transcript(), _transcript()
    expect_agreement("theme.some", kafka, gateway, ())
    in_vain(kafka)
    known = [KnownDifference(("theme.some",), "*", "for a reason")]
    with pytest.raises(AssertionError, match="Kafka never did what exchange") as one:
        expect_agreement("theme.some", kafka, gateway, known)
    assert "Seqgate never" not in str(one.value)
    in_vain(gateway)
    with pytest.raises(AssertionError, match="Seqgate never did"):
        expect_agreement("theme.some", kafka, gateway, ())


def test_a_listed_difference_passes_and_fails_once_it_is_gone() -> None:
    known = [KnownDifference(("theme.some[v*]",), "3.*.error_code", "for a reason")]
    right, altered = _transcript(), _transcript()
    _alter_error(altered)
    found = differences(right, altered)
    assert complaints("theme.some[v3]", found, known) == []
    assert "no longer differs" in complaints("theme.some[v3]", [], known)[0]
    assert complaints("theme.other", [], known) == []
    assert complaints("theme.other", found, known)


def test_only_what_both_endpoints_know_is_compared_in_lists_of_apis_and_configs() -> None:
    def answering(*rows: Any) -> Transcript:
        api_keys = [{"api_key": key, "max_version": version} for key, version in rows]
        return Transcript("t", [Exchange("api_versions v0", {}, answer={"api_keys": api_keys})])

    assert differences(answering((0, 13), (1, 18), (50, 2)), answering((0, 13), (1, 18))) == []
    found = differences(answering((0, 13), (1, 18)), answering((0, 12), (1, 18)))
    assert [item.path for item in found] == ["1.api_keys.0.max_version"]
    assert differences(answering((0, 13)), answering()) != []
    assert MISSING in {item.gateway for item in differences(answering((0, 13)), answering())}


def test_words_for_an_error_that_kafka_leaves_without_are_no_difference() -> None:
    def answering(error_code: int, message: str | None) -> Transcript:
        answer = {"error_code": error_code, "error_message": message}
        return Transcript("t", [Exchange("produce v9", {}, answer=answer)])

    assert differences(answering(2, None), answering(2, "the CRC is wrong")) == []
    assert differences(answering(2, "the CRC is wrong"), answering(2, None)) != []
    assert differences(answering(0, None), answering(0, "all is well")) != []


def test_outcomes_of_markers_are_told_by_producer() -> None:
    def answering(first: int, *order: int) -> Transcript:
        begun = [
            Exchange("init_producer_id v5", {}, answer={"producer_id": first + number}) for number in (0, 1)
        ]
        rows = [{"producer_id": first + number, "topics": [number]} for number in order]
        ended = Exchange("write_txn_markers v1", {}, answer={"markers": rows})
        return Transcript("t", [*begun, ended], {}, [first, first + 1])

    in_a_hash_table = answering(15, 1, 0)
    assert differences(in_a_hash_table, answering(2_000, 0, 1)) == []
    assert differences(in_a_hash_table, answering(2_000, 0)) != []


def test_configs_are_told_by_name() -> None:
    def answering(**configs: str) -> Transcript:
        rows = [{"name": name, "value": value} for name, value in configs.items()]
        return Transcript("t", [Exchange("describe_configs v4", {}, answer={"configs": rows})])

    found = differences(answering(a="1", b="2", c="3"), answering(b="5", a="1"))
    assert [item.path for item in found] == ["1.configs.b.value"]


def test_a_difference_with_witnesses_must_occur_only_there() -> None:
    known = [KnownDifference(("*",), "*.error_code", "for a reason", ("theme.seen",))]
    assert complaints("theme.other", [], known) == []
    assert complaints("theme.seen", [], known) != []
