"""A start of the whole gateway on damaged files: an input is damage to a directory of topics, groups and
transactions.

The gateway either starts, with damaged parts rebuilt or offline and all others unchanged, or exits with one
error message.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import uvloop

from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.gateway import Gateway
from tests.fuzzing.composed_requests import TOPICS
from tests.fuzzing.damage import OVERWRITE, Damaged, Files, damaged, mutated_steps, steps_of
from tests.fuzzing.partition_files import read_files, write_files
from tests.fuzzing.scene import (
    COMMITTED_OFFSET,
    COMMITTER,
    PROBE,
    Complaints,
    Scene,
    listening,
    running_gateway,
    temporary_directory,
)
from tests.fuzzing.target import Breach, Run

MAX_INPUT_BYTES = 1024
PEAK_BYTES = 128 << 20
BASE_WORK = 4000.0
SOCKET = "control.sock"
METADATA, OFFSETS = "__cluster_metadata-0", "__consumer_offsets-0"


class Starter:
    """Starts gateways on damaged copies of a directory."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path) -> None:
        self._loop = loop
        self._path = path

    def run(self, data: bytes) -> None:
        files = directories()[data[0] % 2 if data else 0]
        damage = damaged(files, data[1:])
        write_files(self._path, damage.files)
        try:
            self._loop.run_until_complete(self._start(damage))
        finally:
            shutil.rmtree(self._path)

    async def _start(self, damage: Damaged) -> None:
        async with listening(damage=True) as complaints:
            try:
                async with running_gateway(self._path) as gateway:
                    await _ask_around(gateway, complaints, damage)
            except StartFailed as refusal:
                if "\n" in str(refusal):
                    raise Breach(f"a start is refused with more than one sentence: {refusal}") from refusal
            complaints.check()
        self._check_kept(damage)

    def _check_kept(self, damage: Damaged) -> None:
        """Check that records are deleted only where the metadata says so, however the metadata was damaged."""
        names = [
            path.name for path in self._path.iterdir() if path.is_dir() and not path.name.endswith("-delete")
        ]
        for topic in (*TOPICS, PROBE):
            is_untouched = not any(name.startswith(f"{topic}-0/") for name in damage.touched)
            if is_untouched and not any(name.startswith(f"{topic}-0") for name in names):
                raise Breach(f"the records of {topic} were deleted because of {sorted(damage.touched)}")


@contextmanager
def opened() -> Iterator[Run]:
    loop = uvloop.new_event_loop()
    with temporary_directory() as path:
        yield Starter(loop, path / "data").run
    loop.close()


@cache
def directories() -> tuple[Files, Files]:
    """Return the files that a clean stop leaves, and those that a crash leaves."""
    loop = uvloop.new_event_loop()
    try:
        return loop.run_until_complete(_made())
    finally:
        loop.close()


async def _made() -> tuple[Files, Files]:
    with temporary_directory() as path:
        async with listening() as complaints, running_gateway(path) as gateway:
            await Scene(gateway, complaints).set_up()
            killed = read_files(path)
        stopped = read_files(path)
    return stopped, killed


async def _ask_around(gateway: Gateway, complaints: Complaints, damage: Damaged) -> None:
    scene = Scene(gateway, complaints)
    await scene.begin_asking()
    touched = {name.partition("/")[0] for name in damage.touched}
    is_known = not any(name.startswith(METADATA) or "/" not in name for name in damage.touched)
    if is_known and not any(name.startswith(PROBE) for name in touched):
        await scene.probe()
    if is_known and not any(name.startswith(OFFSETS) for name in touched):
        await _check_commit(scene)
    for topic in (*TOPICS, PROBE):
        for timestamp in (-1, -3, 5):
            partition = {"partition_index": 0, "timestamp": timestamp}
            asked = [{"name": topic, "partitions": [partition]}]
            await scene.ask("list_offsets", 7, replica_id=-1, topics=asked)
        asked = [{"topic": topic, "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}]
        await scene.ask(
            "fetch", 12, max_bytes=1000, session_epoch=-1, replica_id=-1, isolation_level=1, topics=asked
        )
    await scene.ask("list_groups", 4)
    await scene.ask("list_transactions", 0, duration_filter=-1)
    await scene.ask("describe_log_dirs", 4, topics=None)


async def _check_commit(scene: Scene) -> None:
    await scene.ask("find_coordinator", 3, key=COMMITTER, key_type=0)
    asked = [{"name": "plain", "partition_indexes": [0]}]
    answer = await scene.ask("offset_fetch", 5, group_id=COMMITTER, topics=asked)
    told = answer["topics"][0]["partitions"][0]
    if told["error_code"] or told["committed_offset"] != COMMITTED_OFFSET:
        raise Breach(f"a committed offset is gone, although it was not damaged: {answer}")


def seeds() -> Iterator[bytes]:
    for kind in range(2):
        yield bytes([kind])
        for number in range(0, 60, 3):
            yield bytes([kind]) + steps_of((number, OVERWRITE, 9, b"\x01"))


def mutated(data: bytes, chance: random.Random) -> bytes:
    if not data or chance.random() < 0.3:
        data = bytes([chance.randrange(2)])
    return mutated_steps(data, directories()[data[0] % 2], chance)
