"""Produce requests get the same answers on one connection, which remembers their prefixes, as on new ones,
which do not.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.support.batches import Batch, records
from tests.support.gateway_process import GatewayProcess
from tests.support.wire import Closed, Wire

OUT_OF_ORDER, CORRUPT, TOO_LARGE, UNKNOWN_TOPIC, NOT_AUTHORIZED = 45, 2, 10, 3, 53


def create(gateway: GatewayProcess, topic: str, **configs: str) -> None:
    new = {"name": topic, "num_partitions": 2, "replication_factor": 1, "assignments": []}
    new["configs"] = [{"name": name, "value": value} for name, value in configs.items()]
    with Wire(gateway.bootstrap) as wire:
        answer = wire.call("create_topics", 5, {"topics": [new], "timeout": 30_000, "validate_only": False})
    assert answer.fields["topics"][0]["error_code"] == 0


def delete(gateway: GatewayProcess, topic: str) -> None:
    with Wire(gateway.bootstrap) as wire:
        answer = wire.call("delete_topics", 5, topic_names=[topic], timeout=30_000)
    assert answer.fields["responses"][0]["error_code"] == 0


def request(topic: str, batch: bytes | None, acks: int = -1, index: int = 0) -> dict[str, Any]:
    data = [{"index": index, "records": batch}]
    return {"acks": acks, "timeout": 30_000, "topic_data": [{"name": topic, "partition_data": data}]}


def row(fields: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = fields["responses"][0]["partition_responses"][0]
    return found


def script(topic: str, producer_id: int) -> list[dict[str, Any]]:
    """Return requests with good batches, duplicates, and one batch for each possible error."""
    batch = Batch(records(3)).of(producer_id, 0, 0)
    good = [replace(batch, base_sequence=sequence).encode() for sequence in range(0, 30, 3)]
    torn = bytearray(good[5])
    torn[-1] ^= 1
    return [
        request(topic, good[0]),
        request(topic, good[1]),
        request(topic, good[0]),
        request(topic, good[3]),
        request(topic, good[2], acks=1),
        request(topic, good[3], index=1),
        request(topic, good[3]),
        request(topic, bytes(torn)),
        request(topic, None),
        request(topic, b""),
        request(topic, good[4][:40]),
        request(topic, replace(batch, base_sequence=12, attributes=0x10).encode()),
        request(topic, replace(batch, base_sequence=12, codec="zstd").encode()),
        request(topic, replace(batch, base_sequence=15, base_timestamp=2**50).encode()),
        request(topic, Batch(records(1, 2_000)).of(producer_id, 0, 15).encode()),
        request(topic, good[5]),
        request(topic, good[6], acks=7),
        request(topic, good[6]),
    ]


def without_names(fields: dict[str, Any], topic: str) -> dict[str, Any]:
    """Return the answer without the topic's name and the time, which differ from run to run."""
    text = json.dumps(fields).replace(topic, "TOPIC")
    plain: dict[str, Any] = json.loads(re.sub(r"clock \(\d+\)", "clock", text))
    return plain


@pytest.mark.parametrize("flush_messages", ["1", "1000000"])
@pytest.mark.parametrize("version", [5, 7, 8, 9, 12])
def test_answers_as_on_new_connections(
    shared_gateway: GatewayProcess, version: int, flush_messages: str
) -> None:
    answers: dict[str, list[dict[str, Any]]] = {"one": [], "new": []}
    for way, answered in answers.items():
        topic = f"repeats-{way}-{version}-{flush_messages}"
        create(shared_gateway, topic, **{"flush.messages": flush_messages, "max.message.bytes": "1000"})
        with Wire(shared_gateway.bootstrap) as kept:
            for asked in script(topic, 7_000):
                if way == "one":
                    fields = kept.call("produce", version, asked).fields
                else:
                    with Wire(shared_gateway.bootstrap) as new:
                        fields = new.call("produce", version, asked).fields
                answered.append(without_names(fields, topic))
    for one, new in zip(answers["one"], answers["new"], strict=True):
        assert one == new
    codes = [row(fields)["error_code"] for fields in answers["one"]]
    assert codes.count(0) >= 6
    assert {OUT_OF_ORDER, CORRUPT, TOO_LARGE, NOT_AUTHORIZED} <= set(codes)


def test_a_topic_that_is_deleted_and_created_again(shared_gateway: GatewayProcess) -> None:
    create(shared_gateway, "again")
    batch = Batch(records(1)).of(8_000, 0, 0)
    with Wire(shared_gateway.bootstrap) as wire:
        for sequence in range(3):
            asked = request("again", replace(batch, base_sequence=sequence).encode())
            assert row(wire.call("produce", 9, asked).fields)["base_offset"] == sequence
        delete(shared_gateway, "again")
        asked = request("again", replace(batch, base_sequence=3).encode())
        assert row(wire.call("produce", 9, asked).fields)["error_code"] == UNKNOWN_TOPIC
        create(shared_gateway, "again")
        answered = row(wire.call("produce", 9, asked).fields)
        assert (answered["error_code"], answered["base_offset"]) == (0, 0)


def test_many_prefixes_on_one_connection(shared_gateway: GatewayProcess) -> None:
    """Produces to more topics in turn than a connection remembers prefixes."""
    topics = [f"prefix-{number}" for number in range(40)]
    for topic in topics:
        create(shared_gateway, topic)
    batch = Batch(records(2)).of(8_100, 0, 0)
    with Wire(shared_gateway.bootstrap) as wire:
        for turn in range(3):
            for topic in topics:
                asked = request(topic, replace(batch, base_sequence=2 * turn).encode())
                assert row(wire.call("produce", 9, asked).fields)["base_offset"] == 2 * turn


def test_acks_0_closes_on_the_first_error_of_a_repeat(shared_gateway: GatewayProcess) -> None:
    create(shared_gateway, "silent")
    batch = Batch(records(1)).of(8_200, 0, 0)
    with Wire(shared_gateway.bootstrap) as wire:
        for sequence in range(3):
            wire.send(
                "produce", 9, request("silent", replace(batch, base_sequence=sequence).encode(), acks=0)
            )
        answered = row(
            wire.call("produce", 9, request("silent", replace(batch, base_sequence=3).encode())).fields
        )
        assert (answered["error_code"], answered["base_offset"]) == (0, 3)
        wire.send("produce", 9, request("silent", replace(batch, base_sequence=99).encode(), acks=0))
        with pytest.raises(Closed):
            wire.receive_frame()
