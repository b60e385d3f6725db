"""Reads and replaces manifests. A replacement is conditional, so a process that has not noticed the end of its session can't undo one.

A manifest that another process wrote meanwhile tells by its session who that was. One of an earlier session is replaced: that process
has lost its session, and does not delete what our manifest names. One of a later session ends us.

A process whose session has ended may replace a manifest even after this session's local files were made from it. The newer manifest may name a
compacted segment, which has other bytes than the local file. So the parts of the manifest that was restored are the ones that are kept.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from gateway.cluster.objects.objects import Changed, Missing, ObjectStore, StoreFailed
from gateway.cluster.parts.keys import PartitionKey, manifest_key
from gateway.cluster.parts.manifest import Manifest, decode_manifest, encode_manifest
from gateway.cluster.wal.persistence import PersistentReads


class Overtaken(Exception):
    """A later session has replaced the manifest: our session has ended."""


class Known(NamedTuple):
    """A manifest, and the version of the object that has it."""

    manifest: Manifest | None
    version: str | None
    session: int = -1
    """The session that wrote the object; -1 without one."""


class Manifests:
    """The manifests that one session has read or written."""

    def __init__(
        self,
        objects: ObjectStore,
        *,
        restored: Mapping[PartitionKey, Manifest] | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """Take the store, and the manifests from which the local files were made."""
        self._objects = objects
        self._restored = restored or {}
        self._reads = PersistentReads(objects, "the gateway waits to read and replace manifests", chance)
        self._known: dict[PartitionKey, Known] = {}

    def of(self, partition: PartitionKey) -> Manifest | None:
        """Return the manifest as it was last read or written here; None without one."""
        known = self._known.get(partition)
        return None if known is None else known.manifest

    def partitions(self) -> list[PartitionKey]:
        """Return the partitions with a manifest."""
        return [partition for partition, known in self._known.items() if known.manifest is not None]

    async def load(self, partition: PartitionKey) -> Manifest | None:
        """Return the manifest, and read it at first; None without one. Waits until the store answers.

        Returns the parts and files of the restored manifest where an ended session has replaced that one since.

        Raises CorruptPart, IncompatibleFormat, Refused.
        """
        if partition not in self._known:
            self._known[partition] = self._as_restored(await self._read(partition))
        return self._known[partition].manifest

    async def names_all(self, partition: PartitionKey, names: Iterable[str]) -> bool:
        """Return whether the stored manifest names all these objects. Waits until the store answers. Raises as `load`."""
        manifest = (await self._read(partition)).manifest
        return manifest is not None and manifest.objects.issuperset(names)

    async def replace(self, manifest: Manifest) -> Manifest:
        """Replace the manifest by this one in the next generation; return what was stored. Waits until the store answers.

        Raises Overtaken, CorruptPart, IncompatibleFormat, Refused.
        """
        partition = manifest.key
        await self.load(partition)
        known = self._known[partition]
        conflicts = self._reads.conflicts()
        while True:
            if known.session > manifest.session:
                raise Overtaken(f"session {known.session} has replaced {manifest_key(partition)}")
            stored = _next(manifest, known.manifest)
            try:
                version = await self._objects.replace(
                    manifest_key(partition), encode_manifest(stored), known.version
                )
            except (Changed, StoreFailed) as error:
                # An earlier attempt of this call may have replaced the manifest. So the manifest is read again.
                if isinstance(error, StoreFailed):
                    await self._reads.failed(error)
                known = await self._read(partition)
                if known.manifest != stored:
                    await asyncio.sleep(conflicts.next_s())
                    continue
            else:
                known = Known(stored, version, stored.session)
            self._known[partition] = known
            return stored

    async def delete(self, partition: PartitionKey) -> None:
        """Delete the manifest. Waits until the store answers. Raises Refused."""
        await self._reads.answered(lambda: self._objects.delete(manifest_key(partition)))
        self._known.pop(partition, None)

    async def _read(self, partition: PartitionKey) -> Known:
        key = manifest_key(partition)
        try:
            content, version = await self._reads.answered(lambda: self._objects.read(key))
        except Missing:
            return Known(None, None)
        manifest = decode_manifest(content, key)
        return Known(manifest, version, manifest.session)

    def _as_restored(self, known: Known) -> Known:
        present = known.manifest
        restored = None if present is None else self._restored.get(present.key)
        if present is None or restored is None or present.generation <= restored.generation:
            return known
        return known._replace(manifest=msgspec.structs.replace(restored, generation=present.generation))


def _next(manifest: Manifest, before: Manifest | None) -> Manifest:
    generation = 0 if before is None else before.generation + 1
    return Manifest(
        manifest.topic_id,
        manifest.partition,
        manifest.topic,
        manifest.session,
        manifest.seq,
        manifest.log_start_offset,
        manifest.end_offset,
        manifest.segments,
        manifest.files,
        generation,
    )
