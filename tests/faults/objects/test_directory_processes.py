"""Several processes, also killed ones, create and replace objects in one directory: each object has one
creator, and is whole.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

from seqgate.gateway.cluster.objects.directory_objects import TEMPORARY, DirectoryObjects
from tests.faults.objects.writer import COUNTER, content_of, key_of
from tests.support.seeds import chosen_seed

WRITERS = 4
KEYS = 240
KILLS = 6
ENDLESS = 1_000_000


def start(directory: Path, writer: str, first: int, end: int) -> subprocess.Popen[str]:
    module = "tests.faults.objects.writer"
    command = [sys.executable, "-m", module, str(directory), writer, str(first), str(end)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def numbers(lines: list[str], what: str) -> list[int]:
    return [int(line.split()[1]) for line in lines if line.startswith(what) and line.endswith("\n")]


async def check(directory: Path, told: dict[str, list[str]]) -> None:
    """Check that each object is whole, and that what a writer was told is true."""
    objects = DirectoryObjects(directory)
    created = {writer: numbers(lines, "created") for writer, lines in told.items()}
    for writer, theirs in created.items():
        for number in theirs:
            assert await objects.get(key_of(number)) == content_of(writer, number)
    winners = [number for theirs in created.values() for number in theirs]
    assert len(winners) == len(set(winners))
    async for entry in objects.list("wal/"):
        number = int(entry.key.rpartition("/")[2])
        content = await objects.get(entry.key)
        assert content in [content_of(writer, number) for writer in told], f"{entry.key} is torn"
    counted = [number for lines in told.values() for number in numbers(lines, "counted")]
    assert len(counted) == len(set(counted)), "two writers replaced the same version"
    assert max(counted) <= int(await objects.get(COUNTER))


async def test_processes_race_for_each_key(tmp_path: Path) -> None:
    writers = {f"writer{number}": start(tmp_path, f"writer{number}", 0, KEYS) for number in range(WRITERS)}
    told = {name: process.communicate()[0].splitlines(keepends=True) for name, process in writers.items()}
    assert [process.returncode for process in writers.values()] == [0] * WRITERS
    created = [number for lines in told.values() for number in numbers(lines, "created")]
    assert sorted(created) == list(range(KEYS))
    counted = [number for lines in told.values() for number in numbers(lines, "counted")]
    assert sorted(counted) == list(range(1, len(counted) + 1))
    assert list((tmp_path / TEMPORARY).iterdir()) == []
    await check(tmp_path, told)


async def test_processes_are_killed_in_the_middle(tmp_path: Path) -> None:
    chance = Random(chosen_seed())
    told: dict[str, list[str]] = {}
    first = 0
    for life in range(KILLS):
        names = [f"writer{life}-{number}" for number in range(2)]
        writers = [start(tmp_path, name, first, ENDLESS) for name in names]
        wanted = chance.randint(1, 60)
        assert writers[0].stdout is not None
        lines = [writers[0].stdout.readline() for _ in range(wanted)]
        for writer in writers:
            writer.kill()
        outputs = [writer.communicate()[0].splitlines(keepends=True) for writer in writers]
        told |= {names[0]: lines + outputs[0], names[1]: outputs[1]}
        await check(tmp_path, told)
        first += chance.randint(1, 20)
    assert sum(len(numbers(lines, "created")) for lines in told.values()) > KILLS
