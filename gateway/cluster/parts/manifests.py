"""Reads and replaces manifests. A replacement is conditional, so a process that has not noticed the end of its session can't undo one.

A manifest that another process wrote meanwhile tells by its leader epoch and its session who that was. One of an earlier leadership is
replaced: that process does not lead the partition any more, and does not delete what our manifest names. One of a later leadership is never
replaced: with a later leader epoch it ends our leadership of the partition, and with a later session of this node it ends our session.

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
    """A later session of this node has replaced the manifest: our session has ended."""


class NoLongerLed(Exception):
    """The leader of a later leader epoch has replaced the manifest: this gateway does not lead the partition any more."""


class Known(NamedTuple):
    """A manifest, and the version of the object that has it."""

    manifest: Manifest | None
    version: str | None
    leadership: tuple[int, int] = (-1, -1)
    """The leader epoch and the session that wrote the object; -1 without one."""


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
        manifest = await self.present(partition)
        return manifest is not None and manifest.objects.issuperset(names)

    async def replace(self, manifest: Manifest) -> Manifest:
        """Replace the manifest by this one in the next generation; return what was stored. Waits until the store answers.

        Raises NoLongerLed, Overtaken, CorruptPart, IncompatibleFormat, Refused.
        """
        partition = manifest.key
        await self.load(partition)
        known = self._known[partition]
        conflicts = self._reads.conflicts()
        while True:
            _check_leadership(known, manifest)
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
                known = Known(stored, version, stored.leadership)
            self._known[partition] = known
            return stored

    async def present(self, partition: PartitionKey) -> Manifest | None:
        """Return the manifest that the bucket has now, None without one; it stays unknown here. Raises as `load`."""
        return (await self._read(partition)).manifest

    def forget(self, partition: PartitionKey) -> None:
        """Forget a partition that another gateway leads."""
        self._known.pop(partition, None)

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
        return Known(manifest, version, manifest.leadership)

    def _as_restored(self, known: Known) -> Known:
        present = known.manifest
        restored = None if present is None else self._restored.get(present.key)
        if present is None or restored is None or present.generation <= restored.generation:
            return known
        return known._replace(manifest=msgspec.structs.replace(restored, generation=present.generation))


def _check_leadership(known: Known, manifest: Manifest) -> None:
    """Check that the manifest may replace the known one. Raises NoLongerLed, Overtaken."""
    leader_epoch, session = known.leadership
    if leader_epoch > manifest.leader_epoch:
        raise NoLongerLed(
            f"session {session} leads the partition in epoch {leader_epoch} and has replaced {manifest_key(manifest.key)}"
        )
    if known.leadership > manifest.leadership:
        raise Overtaken(f"session {session} has replaced {manifest_key(manifest.key)}")


def _next(manifest: Manifest, before: Manifest | None) -> Manifest:
    generation = 0 if before is None else before.generation + 1
    return msgspec.structs.replace(manifest, generation=generation)
