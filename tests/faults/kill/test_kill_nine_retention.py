"""`kill -9` while segments roll and are deleted under load: after every start, offsets and producer state are
exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from tests.faults.kill.checker import Ledger, check, summary
from tests.faults.kill.load import KillableGateway, Producers, create_topic, fixed_port
from tests.support.gateway_cluster import await_true
from tests.support.read_back import read_back
from tests.support.seeds import chosen_seed
from tests.support.wire import Wire

KILLS = 6
WHILE_STARTING = 0.3
START_TICKS = (5, 45)
MOST_RECORDS_BETWEEN = 1500
TOPIC = "forgotten"
PARTITIONS = 3
LIBRARIES = ("kafka-python", "confluent-kafka")
EARLIEST, LATEST = -2, -1
SETTINGS = {"log.retention.check.interval.ms": "20"}
CONFIGS = {
    "retention_bytes": 60_000,
    "internal_segment_bytes": 6_000,
    "segment_ms": 300,
    "file_delete_delay_ms": 0,
}


@contextmanager
def running(tmp_path: Path, rng: Random) -> Iterator[KillableGateway]:
    with KillableGateway(tmp_path / "data", settings=SETTINGS, port=fixed_port()) as gateway:
        create_topic(gateway.bootstrap, TOPIC, PARTITIONS, **CONFIGS)
        yield gateway
        assert "Traceback" not in gateway.stderr_text()


def test_kills_while_segments_roll_and_go(tmp_path: Path) -> None:
    seed = chosen_seed()
    rng = Random(seed)
    with (
        running(tmp_path, rng) as gateway,
        Producers(gateway.bootstrap, TOPIC, PARTITIONS, tmp_path, LIBRARIES) as producers,
    ):
        producers.await_further(1)
        starts = dict.fromkeys(range(PARTITIONS), 0)
        for _ in range(KILLS):
            producers.await_further(rng.randint(1, MOST_RECORDS_BETWEEN))
            await_true(lambda: offsets(gateway, EARLIEST) != starts, "segments are deleted")  # noqa: B023 - at once
            before = offsets(gateway, EARLIEST)
            gateway.kill()
            if rng.random() < WHILE_STARTING:
                gateway.kill_while_starting(rng.randint(*START_TICKS))
            gateway.start()
            starts = offsets(gateway, EARLIEST)
            assert all(starts[partition] >= before[partition] for partition in starts), (before, starts)
        await_true(
            lambda: min(offsets(gateway, EARLIEST).values()) > 0, "segments of each partition are deleted"
        )
        producers.finish()
        print(producers.summary())
        check_all(gateway, producers)


def check_all(gateway: KillableGateway, producers: Producers) -> None:
    alter(gateway, {"retention.bytes": "-1"})  # retention deletes nothing while the test reads
    starts, ends = offsets(gateway, EARLIEST), offsets(gateway, LATEST)
    rows = read_back(gateway.bootstrap, TOPIC, PARTITIONS, starts)
    breaches = check(producers.ledgers, rows, starts)
    assert not breaches, f"{summary(breaches)}\n{producers.summary()}"
    assert ends == {partition: starts[partition] + len(rows[partition]) for partition in rows}
    for partition in range(PARTITIONS):
        assert last_sequences(gateway, partition) >= sent_of_the_lasting(producers.ledgers, partition)


def sent_of_the_lasting(ledgers: list[Ledger], partition: int) -> set[int]:
    """Return the last sequence per partition of each producer that kept its id and had all records
    acknowledged.
    """
    return {
        ledger.sent[0, partition] - 1 for ledger in ledgers if ledger.incarnations == 1 and not ledger.failed
    }


def offsets(gateway: KillableGateway, position: int) -> dict[int, int]:
    wanted = [{"partition_index": index, "timestamp": position} for index in range(PARTITIONS)]
    with Wire(gateway.bootstrap) as wire:
        request = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": TOPIC, "partitions": wanted}]}
        rows = wire.call("list_offsets", 5, request).fields["topics"][0]["partitions"]
    assert all(row["error_code"] == 0 for row in rows), rows
    return {row["partition_index"]: row["offset"] for row in rows}


def last_sequences(gateway: KillableGateway, partition: int) -> set[int]:
    with Wire(gateway.bootstrap) as wire:
        topics = [{"name": TOPIC, "partition_indexes": [partition]}]
        answer = wire.call("describe_producers", 0, topics=topics).fields
    return {row["last_sequence"] for row in answer["topics"][0]["partitions"][0]["active_producers"]}


def alter(gateway: KillableGateway, values: dict[str, str]) -> None:
    configs = [{"name": name, "config_operation": 0, "value": value} for name, value in values.items()]
    resource = {"resource_type": 2, "resource_name": TOPIC, "configs": configs}
    with Wire(gateway.bootstrap) as wire:
        request = {"resources": [resource], "validate_only": False}
        answer = wire.call("incremental_alter_configs", 0, request).fields
    assert answer["responses"][0]["error_code"] == 0, answer
