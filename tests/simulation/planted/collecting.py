"""Mistakes about the moment at which uploads count, and about what they delete then."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from seqgate.gateway.cluster.parts.manifest import (
    KnownManifest,
    Manifest,
    Manifests,
    PartitionKey,
    encode_manifest,
    manifest_key,
)
from seqgate.gateway.cluster.uploads import collection, uploads
from seqgate.gateway.cluster.uploads.collection import Coverage
from seqgate.gateway.cluster.uploads.partition_uploads import PartitionUploads, Uploaded, UploadPorts
from seqgate.gateway.cluster.uploads.uploads import Uploads
from seqgate.log import PartitionLog
from tests.simulation.planted.fault import Change, bucket_fault, fault_in
from tests.simulation.worlds import World


@fault_in("zombies", world=World.BUCKET, is_found=False)
def boundary_moved_without_the_barrier() -> list[Change]:
    """objects are deleted as soon as their rows are in a manifest, by a session that may have ended before it
    replaced the manifest
    """
    upload_one = Uploads._upload_one

    async def and_collect(self: Uploads, *arguments: Any, **options: Any) -> None:
        before = len(self._stored)
        await upload_one(self, *arguments, **options)
        for each in self._stored[before:]:
            self._coverage.counts(each.manifest)
        await self._collect()

    return [(Uploads, "_upload_one", and_collect)]


@fault_in("zombies", world=World.BUCKET, is_found=False)
def parts_deleted_without_the_barrier() -> list[Change]:
    """the parts that a manifest replaces are deleted at once, by a session that may have ended before it
    replaced the manifest
    """
    upload = PartitionUploads.upload

    async def and_delete(self: PartitionUploads, log: PartitionLog) -> Uploaded:
        uploaded = await upload(self, log)
        await self._delete(uploaded.manifest.key, sorted(uploaded.garbage))
        return uploaded

    return [(PartitionUploads, "upload", and_delete)]


@fault_in("zombies", world=World.BUCKET, is_found=False)
def manifest_of_a_later_session_replaced() -> list[Change]:
    """a gateway that finds the manifest of a later session replaces it, as it does with one of an earlier
    session
    """
    replace = Manifests.replace

    async def regardless(self: Manifests, manifest: Manifest) -> Manifest:
        try:
            return await replace(self, manifest)
        except uploads.Overtaken:
            found = await self._read(manifest.key)
            assert found.manifest is not None
            stored = msgspec.structs.replace(manifest, generation=found.manifest.generation + 1)
            version = await self._objects.replace(
                manifest_key(manifest.key), encode_manifest(stored), found.version
            )
            self._known[manifest.key] = KnownManifest(stored, version)
            return stored

    return [(Manifests, "replace", regardless)]


@fault_in("names", "names and power", world=World.BUCKET, is_found=False)
def side_files_ahead_of_their_records() -> list[Change]:
    """a manifest gets the side files of the local disk, which may be ahead of the records that are durable"""

    async def at_once(_: PartitionLog) -> None:
        return

    class Ports(UploadPorts):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments[:-2], at_once, arguments[-1])

    return [(uploads, "UploadPorts", Ports)]


@bucket_fault
def earlier_sessions_not_needed() -> list[Change]:
    """a session collects the logs of earlier ones, although no manifest has what is in them"""

    class Nothing(Coverage):
        def put(self, *_: object) -> None:
            return

    return [(collection, "Coverage", Nothing)]


@fault_in("deletions", world=World.BUCKET, is_found=False)
def covered_by_offset_only() -> list[Change]:
    """a row counts as covered when the manifest has its records, whatever the log start offset and the side
    files are
    """

    def are_in(self: collection._Rows, manifest: Manifest) -> bool:
        return self.end_offset <= manifest.end_offset

    return [(collection._Rows, "are_in", are_in)]


@fault_in("zombies", "takeovers", world=World.BUCKET)
def compacted_segments_kept() -> list[Change]:
    """an upload keeps the parts of a segment by its base offset, although a compaction has replaced the file"""

    async def by_base(
        self: PartitionUploads, _: PartitionKey, seen: Any, before: Manifest | None, *, is_last: bool
    ) -> Any:
        kept = (each.parts for each in before.segments if each.base == seen.base_offset) if before else ()
        return next(itertools.chain(kept), ())

    return [(PartitionUploads, "_kept_parts", by_base)]


@bucket_fault
def late_objects_left() -> list[Change]:
    """nobody looks for objects that a late call has created again below the boundary of their log"""

    async def nothing(*_: object, **__: object) -> list[Any]:
        return []

    return [(uploads, "find_collected", nothing)]
