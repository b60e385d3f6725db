"""SIGTERM while a gateway starts or runs, and its bucket does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from seqgate.gateway import gateway as composition
from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.backends.bucket_backend import BucketBackend
from seqgate.gateway.cluster.objects.directory_objects import DirectoryObjects
from seqgate.gateway.cluster.objects.objects import Buffer, Refused, StoreFailed
from seqgate.gateway.cluster.wal.sessions import CHANGE_MAGIC
from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.running import start_until


class _AwayFrom(DirectoryObjects):
    """A store that is away from its n-th creation of an object of the write-ahead log, or of a change of the
    metadata, on.
    """

    def __init__(self, path: Path, count: int) -> None:
        super().__init__(path)
        self._left = count
        self.error: Exception = StoreFailed("503 Slow Down")
        self.is_away = asyncio.Event()

    async def create(self, key: str, content: bytes | Sequence[Buffer]) -> None:
        is_counted = key.startswith("wal/") or content[:4] == CHANGE_MAGIC
        if is_counted and not self.is_away.is_set():
            self._left -= 1
            if self._left < 0:
                self.is_away.set()
        self._check()
        await super().create(key, content)

    async def get_end(self, key: str, size_bytes: int) -> bytes:
        self._check()
        return await super().get_end(key, size_bytes)

    def _check(self) -> None:
        if self.is_away.is_set():
            raise self.error


def _gateway(tmp_path: Path, count: int) -> tuple[Gateway, _AwayFrom]:
    (tmp_path / "bucket").mkdir(exist_ok=True)
    overrides = [
        f"log.dirs={tmp_path / 'cache'}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"seqgate.cluster=file://{tmp_path / 'bucket'}",
    ]
    gateway = Gateway(load_config(overrides=overrides))
    store = _AwayFrom(tmp_path / "bucket", count)
    gateway.machine.objects = lambda _: store  # type: ignore[method-assign]
    return gateway, store


async def _cluster_id(tmp_path: Path) -> str:
    gateway, _ = _gateway(tmp_path, 1_000_000)
    await gateway.start()
    await gateway.stop()
    return gateway.services.node.cluster_id


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_a_start_whose_store_goes_away_ends_at_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The first object is the barrier of the start; then the block of producer ids and the registration are
    changes of the metadata.
    """
    monkeypatch.setattr(composition, "STORE_TIMEOUT_S", 0.1)
    monkeypatch.setattr("seqgate.gateway.backends.bucket_backend.STOP_TIMEOUT_S", 0.1)
    gateway, store = _gateway(tmp_path, count)
    stopped: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    starting = asyncio.ensure_future(start_until(stopped, gateway))
    await asyncio.wait(
        (starting, asyncio.ensure_future(store.is_away.wait())), return_when=asyncio.FIRST_COMPLETED
    )
    stopped.set_result(None)
    assert not await starting
    assert gateway.has_entered == (count > 0)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("create wal/")]
    cluster_id = await _cluster_id(tmp_path)
    assert cluster_id


async def test_a_start_whose_store_refuses_its_registration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(composition, "STORE_TIMEOUT_S", 0.1)
    monkeypatch.setattr("seqgate.gateway.backends.bucket_backend.STOP_TIMEOUT_S", 0.1)
    gateway, store = _gateway(tmp_path, 2)
    store.error = Refused("403 AccessDenied")
    never: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    with pytest.raises(StartFailed, match=r"can't join the cluster: the store refuses .* 403 AccessDenied"):
        await start_until(never, gateway)
    assert await _cluster_id(tmp_path)


async def test_a_start_without_a_stop_waits_for_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(composition, "STORE_TIMEOUT_S", 0.0)
    gateway, store = _gateway(tmp_path, 1)
    stopped: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    starting = asyncio.ensure_future(start_until(stopped, gateway))
    await store.is_away.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    assert not starting.done()
    store.is_away.clear()
    store._left = 1_000_000
    assert await starting
    assert gateway.services.coordinators.producer_ids.state().last_error is None
    await gateway.stop()


async def test_a_stop_whose_store_is_away_ends_amid_a_round_of_uploads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records that wait are given up, as if they had never been answered; the next start has all others."""
    monkeypatch.setattr(composition, "STORE_TIMEOUT_S", 0.1)
    monkeypatch.setattr("seqgate.gateway.backends.bucket_backend.STOP_TIMEOUT_S", 0.1)
    gateway, store = _gateway(tmp_path, 1_000_000)
    await gateway.start()
    assert isinstance(gateway.backend, BucketBackend)
    assert gateway.backend.uploads is not None
    store._left = 0
    uploading = asyncio.ensure_future(gateway.backend.uploads.round())
    await store.is_away.wait()
    log = gateway.services.topics.metadata_log.log
    acknowledged = log.recovery_point
    claiming = asyncio.ensure_future(gateway.services.coordinators.producer_ids.next_producer_id())
    await gateway.stop()
    uploading.cancel()
    claiming.cancel()
    await asyncio.gather(uploading, claiming, return_exceptions=True)
    again, _ = _gateway(tmp_path, 1_000_000)
    await again.start()
    assert again.services.topics.metadata_log.log.log_end_offset >= acknowledged > 0
    await again.stop()
