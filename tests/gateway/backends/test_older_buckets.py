"""A bucket whose metadata an older release has kept in write-ahead logs and parts: the first start copies the
metadata to `meta/`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.admin.cluster.importing import _Import, _is_flushed
from seqgate.gateway.backends import bucket_start
from seqgate.gateway.backends.backend import Backend, StartFailed
from seqgate.gateway.backends.bucket_backend import BucketBackend
from seqgate.gateway.cluster.metadata import shared_log
from seqgate.gateway.cluster.metadata.change import CHANGE, PIECE, decode_change
from seqgate.gateway.cluster.metadata.shared_log import SharedLog
from seqgate.gateway.cluster.objects.objects import Refused
from seqgate.gateway.cluster.uploads.partition_uploads import PartitionUploads, UploadPorts
from seqgate.gateway.cluster.wal import sessions
from seqgate.gateway.cluster.wal.sessions import Session, read_shared_log
from tests.gateway.admin.cluster.test_importing import _write, imported, verified
from tests.gateway.backends.test_uploads import Running, running

METADATA = f"{1:032x}"
"""The topic id of the metadata in keys."""


@contextmanager
def older_release() -> Iterator[None]:
    """Let gateways and imports work as those of cluster version 2."""

    async def copy_nothing(*_: object) -> None:
        pass

    async def upload_metadata(self: Any, session: Session) -> None:
        ports = UploadPorts(
            self._objects, self._storage, self._manifests, session.session, lambda: 0, _is_flushed
        )
        await self._copy(PartitionUploads(ports), self._directory.get("__cluster_metadata", 0))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "CLUSTER_VERSION", 2)
        patch.setattr(sessions, "LEAST_VERSION", 2)
        patch.setattr(BucketBackend, "journal", Backend.journal)
        patch.setattr(bucket_start, "copy_log", copy_nothing)
        patch.setattr(_Import, "_copy_metadata", upload_metadata)
        yield


async def write_as_before(tmp_path: Path, starts: int = 2) -> None:
    with older_release():
        for number in range(starts):
            async with running(tmp_path) as gateway:
                if not number:
                    await gateway.create()
                await gateway.append(2)


async def changes(gateway: Running) -> list[int]:
    """Return the kinds of all changes in the bucket."""
    content = await read_shared_log(gateway.gateway.machine.objects(gateway.gateway.config))
    return [decode_change(each, seq).kind for seq, each in content.changes]


def end(gateway: Running) -> int:
    return gateway.partition.log.log_end_offset


@pytest.mark.parametrize("is_lost", [False, True], ids=["after a clean stop", "after the loss of the disk"])
async def test_the_first_start_copies_the_metadata(tmp_path: Path, is_lost: bool) -> None:
    await write_as_before(tmp_path)
    if is_lost:
        shutil.rmtree(tmp_path / "cache")
    async with running(tmp_path) as gateway:
        assert end(gateway) == 4
        # The copy, the block of producer ids of this start, and its registration.
        assert await changes(gateway) == [CHANGE] * 3
        await gateway.append()
        await gateway.uploads.round()
        assert not any(METADATA in key for key in gateway.objects("parts"))
    shutil.rmtree(tmp_path / "cache")
    async with running(tmp_path) as gateway:
        assert end(gateway) == 5
        # The stop ended the session; this start has a block and a registration of its own.
        assert await changes(gateway) == [CHANGE] * 6
    assert (await asyncio.to_thread(verified, tmp_path / "cache")).damaged == []


async def test_an_older_bucket_without_any_metadata(tmp_path: Path) -> None:
    with older_release(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(BucketBackend, "flusher", lambda *_: (_ for _ in ()).throw(StartFailed("crashed")))
        with pytest.raises(StartFailed, match="crashed"):
            async with running(tmp_path):
                raise AssertionError("the gateway serves")
    shutil.rmtree(tmp_path / "cache")
    async with running(tmp_path) as gateway:
        await gateway.create()
    async with running(tmp_path) as gateway:
        assert end(gateway) == 0


@pytest.mark.parametrize("created", range(4))
async def test_a_copy_that_ended_early_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, created: int
) -> None:
    await write_as_before(tmp_path, starts=3)
    monkeypatch.setattr(shared_log, "PIECE_BYTES", 1)
    honest, left = SharedLog.create, [created]

    async def create(self: SharedLog, batch: bytes, kind: int = CHANGE) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Refused("the store is full")
        return await honest(self, batch, kind)

    with monkeypatch.context() as full:
        full.setattr(SharedLog, "create", create)
        with pytest.raises(StartFailed, match="the store is full"):
            async with running(tmp_path):
                raise AssertionError("the gateway serves")
    async with running(tmp_path) as gateway:
        # A piece for the topic and for the block of each earlier start; then the block and the registration
        # of this one.
        assert await changes(gateway) == [*[PIECE] * 3, CHANGE, CHANGE, CHANGE]
        assert end(gateway) == 6


async def test_the_older_release_is_kept_out(tmp_path: Path) -> None:
    await write_as_before(tmp_path)
    async with running(tmp_path):
        pass
    with older_release(), pytest.raises(StartFailed, match="A later release has used the bucket"):
        async with running(tmp_path):
            raise AssertionError("the gateway serves")


async def test_metadata_in_parts(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (tmp_path / "bucket").mkdir()
    with older_release():
        await _write(data)
        await asyncio.to_thread(imported, data)
    assert (await asyncio.to_thread(verified, data)).damaged == []
    async with running(tmp_path) as gateway:
        assert end(gateway) == 10
        await gateway.uploads.round()
        orphans = await gateway.uploads.find_orphans(0)
        assert {entry.key for entry in orphans} == {
            key for key in gateway.objects("parts") if METADATA in key
        }
        await gateway.uploads.remove(orphans)
    shutil.rmtree(tmp_path / "cache")
    async with running(tmp_path) as gateway:
        assert end(gateway) == 10
    assert (await asyncio.to_thread(verified, data)).damaged == []
