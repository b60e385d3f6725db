"""Small requests with large answers: the answers are limited, and other clients are served meanwhile.

While the attack waits for its answer, a witness must get answers of its own, in proportion to the waiting
time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.hostile.scene import Scene, frame, is_closed, running
from tests.support.batches import Batch
from tests.support.named_batches import named_record
from tests.support.wire import Plain, Wire, encode

PARTITIONS = 2_000


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scene, list[str]]]:
    """A gateway with three topics, whose partitions no client has opened yet."""
    with running(tmp_path_factory.mktemp("wide") / "data") as scene:
        yield scene, [scene.create(count=PARTITIONS) for _ in range(3)]


def attack(
    scene: Scene, api: str, version: int, request: Plain, *, at_least: int = 2, attempts: int = 1
) -> dict[str, Any]:
    """Send a request and take its answer, while the witness gets answers, too: `at_least` so many in one of
    the attempts.
    """
    served = []
    with scene.witness() as witness:
        witness.wait_for(2)
        for _ in range(attempts):
            with scene.wire() as wire:
                before = witness.answers
                answer = wire.call(api, version, request).fields
                served.append(witness.answers - before)
            if served[-1] >= at_least:
                return answer
    raise AssertionError(f"the witness got only {served} answers meanwhile")


def test_list_offsets_of_partitions_that_nobody_opened(wide: tuple[Scene, list[str]]) -> None:
    scene, (topic, _, _) = wide
    rows = [{"partition_index": index, "timestamp": -1} for index in range(PARTITIONS)]
    answer = attack(
        scene, "list_offsets", 7, {"replica_id": -1, "topics": [{"name": topic, "partitions": rows}]}
    )
    found = answer["topics"][0]["partitions"]
    assert [(row["error_code"], row["offset"]) for row in found] == [(0, 0)] * PARTITIONS


def test_fetch_of_partitions_that_nobody_opened(wide: tuple[Scene, list[str]]) -> None:
    scene, (_, topic, _) = wide
    rows = [
        {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1000} for index in range(PARTITIONS)
    ]
    request = {"replica_id": -1, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
    answer = attack(scene, "fetch", 11, {**request, "topics": [{"topic": topic, "partitions": rows}]})
    found = answer["responses"][0]["partitions"]
    assert [(row["error_code"], row["high_watermark"]) for row in found] == [(0, 0)] * PARTITIONS


def test_produce_to_partitions_that_nobody_opened(wide: tuple[Scene, list[str]]) -> None:
    scene, (_, _, topic) = wide
    damaged = bytearray(Batch(()).encode())
    damaged[-1] ^= 1  # A wrong checksum is found only when the partition is open.
    rows = [{"index": index, "records": bytes(damaged)} for index in range(PARTITIONS)]
    topics = [{"name": topic, "partition_data": rows}]
    answer = attack(scene, "produce", 9, {"acks": -1, "timeout": 30_000, "topic_data": topics})
    found = answer["responses"][0]["partition_responses"]
    assert [row["error_code"] for row in found] == [2] * PARTITIONS, "CORRUPT_MESSAGE"


def test_batches_whose_records_take_long_to_look_at(scene: Scene) -> None:
    count = 12
    topic = scene.create(count=count, message_deduplication_enable="true")
    records = [named_record("ab"[index % 2], index) for index in range(20_000)]
    batch = Batch(records, codec="zstd").encode()
    rows = [{"index": index, "records": batch} for index in range(count)]
    topics = [{"name": topic, "partition_data": rows}]
    request = {"acks": -1, "timeout": 30_000, "topic_data": topics}
    # The witness has to be as quick as the gateway here, which a machine with other work prevents now and
    # then.
    answer = attack(scene, "produce", 9, request, at_least=count // 2, attempts=30)
    found = answer["responses"][0]["partition_responses"]
    assert [row["error_code"] for row in found] == [0] * count


def test_configs_asked_for_over_and_over_are_told_once(wide: tuple[Scene, list[str]]) -> None:
    scene, (topic, *_) = wide
    broker = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}
    resources = [{"resource_type": 2, "resource_name": topic, "configuration_keys": None}, broker] * 5_000
    answer = attack(scene, "describe_configs", 4, {"resources": resources}, at_least=0)
    assert [row["resource_type"] for row in answer["results"]] == [2, 4]


def test_offsets_of_a_group_asked_for_over_and_over_are_told_once(wide: tuple[Scene, list[str]]) -> None:
    scene, (topic, *_) = wide
    rows = [{"partition_index": index, "committed_offset": 1} for index in range(PARTITIONS)]
    with scene.wire() as wire:
        wire.call("find_coordinator", 4, key_type=0, coordinator_keys=["g"])
        committed = wire.call(
            "offset_commit",
            8,
            group_id="g",
            generation_id_or_member_epoch=-1,
            topics=[{"name": topic, "partitions": rows}],
        ).fields
    assert {row["error_code"] for row in committed["topics"][0]["partitions"]} == {0}
    answer = attack(
        scene, "offset_fetch", 8, {"groups": [{"group_id": "g", "topics": None}] * 500}, at_least=0
    )
    (group,) = answer["groups"]
    assert len(group["topics"][0]["partitions"]) == PARTITIONS


def test_a_partition_asked_for_over_and_over_is_told_once(wide: tuple[Scene, list[str]]) -> None:
    """Describing a partition can take a thousand times more bytes than its name: offset metadata, producers."""
    scene, (topic, *_) = wide
    rows = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": "x" * 4_000}]
    with scene.wire() as wire:
        wire.call("find_coordinator", 4, key_type=0, coordinator_keys=["long"])
        wire.call(
            "offset_commit",
            8,
            group_id="long",
            generation_id_or_member_epoch=-1,
            topics=[{"name": topic, "partitions": rows}],
        )
    named = {"name": topic, "partition_indexes": [0] * 5_000}
    with scene.bounded():
        group = {"group_id": "long", "topics": [named, named]}
        fetched = attack(scene, "offset_fetch", 8, {"groups": [group]}, at_least=0)["groups"][0]["topics"]
        listed = attack(scene, "describe_producers", 0, {"topics": [named, named]}, at_least=0)["topics"]
    assert [len(row["metadata"]) for answered in fetched for row in answered["partitions"]] == [4_000]
    assert [row["error_code"] for answered in listed for row in answered["partitions"]] == [0]


@pytest.mark.parametrize(
    ("api", "version", "request_of"),
    [
        ("find_coordinator", 4, lambda names: {"key_type": 0, "coordinator_keys": names}),
        ("describe_groups", 5, lambda names: {"groups": names}),
        ("describe_transactions", 0, lambda names: {"transactional_ids": names}),
        ("metadata", 9, lambda names: {"topics": [{"name": name} for name in names]}),
        ("delete_topics", 5, lambda names: {"topic_names": names, "timeout": 30_000}),
        (
            "create_partitions",
            3,
            lambda names: {"topics": [{"name": name, "count": 2} for name in names], "timeout": 30_000},
        ),
        (
            "incremental_alter_configs",
            1,
            lambda names: {
                "resources": [{"resource_type": 2, "resource_name": name, "configs": []} for name in names]
            },
        ),
        (
            "list_partition_reassignments",
            0,
            lambda names: {"topics": [{"name": name, "partition_indexes": [0]} for name in names]},
        ),
        (
            "alter_client_quotas",
            1,
            lambda names: {
                "entries": [
                    {"entity": [{"entity_type": "user", "entity_name": name}], "ops": []} for name in names
                ]
            },
        ),
        (
            "alter_user_scram_credentials",
            0,
            lambda names: {"deletions": [{"name": name, "mechanism": 1} for name in names]},
        ),
        ("describe_user_scram_credentials", 0, lambda names: {"users": [{"name": name} for name in names]}),
    ],
)
def test_twenty_thousand_names_that_nobody_knows(
    wide: tuple[Scene, list[str]], api: str, version: int, request_of: Any
) -> None:
    scene, _ = wide
    with scene.bounded():
        attack(
            scene,
            api,
            version,
            request_of([f"nobody-{number}" for number in range(20_000)]),
            at_least=1,
            attempts=30,
        )


def test_a_million_partitions_are_refused(wide: tuple[Scene, list[str]]) -> None:
    scene, _ = wide
    with scene.bounded(growth_bytes=16 << 20), scene.wire() as wire:
        for count in (20_001, 1_000_000, 2**31 - 1):
            new = {"name": f"million-{count}", "num_partitions": count, "replication_factor": 1}
            answer = wire.call("create_topics", 5, topics=[new], timeout=30_000).fields
            assert answer["topics"][0]["error_code"] == 44, "POLICY_VIOLATION"


def test_more_things_than_a_request_may_name(scene: Scene) -> None:
    payload = encode("find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["g"] * 200_001})
    with scene.connect() as client:
        client.sendall(frame(payload))
        assert is_closed(client)
    assert scene.log_has("names 200001 items; at most 200000 are allowed")


def test_who_hangs_up_is_worked_for_no_longer(tmp_path: Path) -> None:
    """The gateway stops working on long requests when their clients hang up."""
    with running(tmp_path / "data") as scene:
        topic = scene.create(count=10_000)
        rows = [{"partition_index": index, "timestamp": -1} for index in range(10_000)]
        payload = encode(
            "list_offsets", 7, {"replica_id": -1, "topics": [{"name": topic, "partitions": rows}]}
        )
        for _ in range(20):
            with scene.connect() as client:
                client.sendall(frame(payload))
        with Wire(scene.gateway.bootstrap, timeout_s=60) as wire:
            one = {"name": topic, "partitions": rows[:1]}
            assert wire.call("list_offsets", 7, replica_id=-1, topics=[one]).fields["topics"]
