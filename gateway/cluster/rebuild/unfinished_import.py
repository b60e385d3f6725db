"""The object that marks an unfinished import of a data directory, so that no gateway starts from half of it.

The import creates the object before all others and deletes it when everything is there. It is JSON:
`version`, `cluster_id` and `directory_id` of the data directory, and `path` and `host` for people.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from seqgate.gateway.cluster.objects.objects import AlreadyThere
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.sessions import CorruptRegistration
from seqgate.gateway.cluster.wal.wal_object import check_version

KEY: Final = "import"
_VERSION: Final = 1


class UnfinishedImport(msgspec.Struct, frozen=True):
    cluster_id: str
    directory_id: str
    path: str
    host: str
    version: int = _VERSION


async def read_import(reads: PersistentReads) -> UnfinishedImport | None:
    """Return the unfinished import, or None. Raises CorruptRegistration, IncompatibleFormat, Refused."""
    content = await reads.find(KEY)
    if content is None:
        return None
    try:
        found = msgspec.json.decode(content, type=UnfinishedImport)
    except msgspec.MsgspecError as error:
        raise CorruptRegistration(f"{KEY} is damaged: {error}.") from error
    check_version(KEY, found.version, _VERSION)
    return found


async def begin_import(reads: PersistentReads, begun: UnfinishedImport) -> UnfinishedImport:
    """Create the object, and return the import that the object names then. Raises as `read_import`."""
    content = msgspec.json.encode(begun)
    conflicts = reads.conflicts()
    while True:
        try:
            await reads.answered(lambda: reads.objects.create(KEY, content))
        except AlreadyThere:
            present = await read_import(reads)
            if present is not None:
                return present
            await asyncio.sleep(conflicts.next_s())
        else:
            return begun


async def end_import(reads: PersistentReads) -> None:
    await reads.answered(lambda: reads.objects.delete(KEY))
