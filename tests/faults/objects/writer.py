"""A process that creates and replaces objects in a directory, and prints each call that succeeded: `python -m
tests.faults.objects.writer`.

Its arguments are the directory, the writer's name, and the first and the end number of the keys. It races
with other writers for each key.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from seqgate.gateway.cluster.objects.directory_objects import DirectoryObjects
from seqgate.gateway.cluster.objects.objects import AlreadyThere, Changed, Missing

SIZE_BYTES = 40_000
IN_FLIGHT = 4
COUNTER = "counter"


def key_of(number: int) -> str:
    return f"wal/{number % 3}/{number:08}"


def content_of(writer: str, number: int) -> bytes:
    """Return a content that tells who wrote it, and whether it is whole."""
    line = f"{writer} {number}\n".encode()
    return line * (SIZE_BYTES // len(line))


async def _write(objects: DirectoryObjects, writer: str, number: int) -> None:
    try:
        await objects.create(key_of(number), content_of(writer, number))
    except AlreadyThere:
        return
    print(f"created {number}", flush=True)


async def _count(objects: DirectoryObjects) -> None:
    """Add one to the counter that all writers share."""
    try:
        content, version = await objects.read(COUNTER)
        counted = int(content) + 1
        await objects.replace(COUNTER, b"%d" % counted, version)
    except Missing:
        counted = 1
        try:
            await objects.replace(COUNTER, b"1", None)
        except Changed:
            return
    except Changed:
        return
    print(f"counted {counted}", flush=True)


async def main(directory: str, writer: str, first: int, end: int) -> None:
    objects = DirectoryObjects(Path(directory))
    for number in range(first, end, IN_FLIGHT):
        some = range(number, min(number + IN_FLIGHT, end))
        await asyncio.gather(*(_write(objects, writer, one) for one in some), _count(objects))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
