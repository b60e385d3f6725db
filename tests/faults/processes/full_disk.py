"""A disk that fills up under load: refused batches, partitions that go offline and come back by themselves,
and a start without free space.
"""

from __future__ import annotations

from pathlib import Path

from tests.faults.kill.load import create_topic
from tests.faults.processes.scene import PARTITIONS, TOPIC, Outcome, Scene, Setting, command, play, until
from tests.faults.processes.small_disk import Injected, SmallDisk, may_mount, mounted
from tests.support.batches import Batch, records
from tests.support.wire import Wire

MIN_FREE_BYTES = 8 << 20
MOST_RECORDS_BETWEEN = 2000
STORAGE_ERROR = 56
SETTINGS = {"seqgate.log.min.free.bytes": str(MIN_FREE_BYTES)}


def run(directory: Path, seed: int, rounds: int) -> Outcome:
    """Run on a small file system if the process may mount one, otherwise on an injected disk."""
    return (
        on_mounted(directory, seed, rounds) if may_mount(directory) else on_injected(directory, seed, rounds)
    )


def on_mounted(directory: Path, seed: int, rounds: int) -> Outcome:
    with mounted(directory / "small") as disk:
        return _play(directory, seed, rounds, disk)


def on_injected(directory: Path, seed: int, rounds: int) -> Outcome:
    return _play(directory, seed, rounds, Injected(directory / "small"))


def _play(directory: Path, seed: int, rounds: int, disk: SmallDisk) -> Outcome:
    def act(scene: Scene) -> None:
        for number in range(rounds):
            for fill in (_almost, _wholly, _at_start):
                scene.producers.await_further(scene.rng.randint(1, MOST_RECORDS_BETWEEN))
                fill(scene, disk, f"made-{number}")
                scene.counts["full disks"] += 1
            scene.producers.await_further(1)

    setting = Setting(settings=SETTINGS, environment=disk.environment, data_dir=disk.folder / "data")
    return play(directory, seed, act, setting)


def _almost(scene: Scene, disk: SmallDisk, topic: str) -> None:
    """Leave little free space: producers are refused, topics can still be created and deleted, and no
    partition goes offline.
    """
    disk.fill(MIN_FREE_BYTES // 2)
    _await_refusal(scene)
    create_topic(scene.gateway.bootstrap, topic, 1)
    _delete_topic(scene, topic)
    told = command(scene.gateway, "status")
    assert told.returncode == 1, told.stdout + told.stderr
    assert "producers are refused" in told.stdout, told.stdout
    disk.free()


def _wholly(scene: Scene, disk: SmallDisk, _: str) -> None:
    """Fill the disk completely under load: partitions that a failed write takes offline come back by
    themselves.
    """
    disk.fill(0)
    _await_refusal(scene)
    told = command(scene.gateway, "status")
    assert told.returncode in {0, 1}, told.stdout + told.stderr
    assert "Traceback" not in told.stderr, told.stderr
    disk.free()
    for partition in range(PARTITIONS):
        until(lambda partition=partition: _produce(scene, partition) != STORAGE_ERROR, "partitions come back")  # type: ignore[misc]


def _at_start(scene: Scene, disk: SmallDisk, _: str) -> None:
    """Start without free space: the gateway serves the stored data."""
    disk.fill(0)
    scene.gateway.kill()
    scene.gateway.start()
    scene.counts["starts on a full disk"] += 1
    _await_refusal(scene)
    with Wire(scene.gateway.bootstrap) as wire:
        wanted = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
        answer = wire.call(
            "fetch",
            11,
            max_wait=0,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[{"topic": TOPIC, "partitions": wanted}],
        ).fields
    assert answer["responses"][0]["partitions"][0]["error_code"] in {0, STORAGE_ERROR}, answer
    disk.free()


def _await_refusal(scene: Scene) -> None:
    """Wait until no partition accepts a batch."""
    for partition in range(PARTITIONS):
        until(lambda partition=partition: _produce(scene, partition) == STORAGE_ERROR, "batches are refused")  # type: ignore[misc]


def _produce(scene: Scene, partition: int) -> int:
    """Return the error of a batch with a wrong checksum, which is never stored."""
    batch = bytearray(Batch(records(1, 10)).encode())
    batch[-1] ^= 1
    topic_data = [{"name": TOPIC, "partition_data": [{"index": partition, "records": bytes(batch)}]}]
    with Wire(scene.gateway.bootstrap) as wire:
        answer = wire.call("produce", 9, acks=-1, timeout=10_000, topic_data=topic_data).fields
    return int(answer["responses"][0]["partition_responses"][0]["error_code"])


def _delete_topic(scene: Scene, topic: str) -> None:
    with Wire(scene.gateway.bootstrap) as wire:
        answer = wire.call("delete_topics", 5, topic_names=[topic], timeout=10_000).fields
    assert answer["responses"][0]["error_code"] == 0, answer
