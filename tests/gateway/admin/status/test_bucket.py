"""`seqgate status` of a gateway in a bucket: what waits for the bucket, the last round of uploads, and the
cache.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from click.testing import Result
from typer.testing import CliRunner

from seqgate.gateway.admin.status import BucketState, Status
from seqgate.gateway.cli import app
from seqgate.gateway.cluster.objects.objects import Refused
from seqgate.gateway.cluster.uploads.progress import UploadProgress
from tests.gateway.backends.test_uploads import Running, running

CACHE_BYTES = 1 << 30


async def run(tmp_path: Path, *options: str) -> Result:
    arguments = ["status", "--data-dir", str(tmp_path / "cache"), *options]
    return await asyncio.to_thread(CliRunner().invoke, app, arguments)


async def bucket(tmp_path: Path, code: int = 0) -> tuple[BucketState, UploadProgress]:
    result = await run(tmp_path, "--json")
    assert result.exit_code == code, result.output
    found = msgspec.json.decode(result.stdout, type=Status).bucket
    assert found is not None
    assert found.uploads is not None
    return found, found.uploads


async def test_what_waits_for_the_bucket(tmp_path: Path) -> None:
    async with running(tmp_path, f"seqgate.cluster.cache.bytes={CACHE_BYTES}") as gateway:
        await gateway.create()
        await gateway.append(3, size=1000)
        state, before = await bucket(tmp_path)
        assert (state.unwritten_bytes, state.unwritten_max_bytes, state.is_behind) == (0, 64 << 20, False)
        assert before.wal_objects == len(gateway.wal_objects) > 0
        assert before.wal_bytes > 3000
        assert before.oldest_ms is not None
        assert (before.round_ended_ms_ago, before.error, before.running_ms) == (None, None, None)

        await gateway.uploads.round()
        state, after = await bucket(tmp_path)
        assert (after.wal_objects, after.wal_bytes, after.oldest_ms) == (0, 0, None)
        assert after.round_ended_ms_ago is not None
        assert after.error is None
        assert state.cache is not None
        assert (state.cache.max_bytes, state.cache.blocks_fetched) == (CACHE_BYTES, 0)
        shown = (await run(tmp_path)).stdout
    for text in (
        "not durable yet",
        "0 objects; 0 bytes are only there",
        "succeeded",
        f"limit {CACHE_BYTES:,}",
    ):
        assert text in shown


async def test_a_round_that_failed_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as gateway:
        await gateway.create()
        await gateway.append()
        with monkeypatch.context() as patch:
            patch.setattr(gateway.uploads._wal, "barrier", _refused)
            with pytest.raises(Refused):
                await gateway.uploads.round()
        _, failed = await bucket(tmp_path, code=1)
        assert failed.error == "the credentials have expired"
        assert "UPLOADS" in (await run(tmp_path)).stdout
        await _leave_out(gateway, monkeypatch)
        _, partial = await bucket(tmp_path, code=1)
        assert partial.error is not None
        assert partial.error.startswith(
            "partitions that can't be uploaded now: 1; for example, partition 0 of topic "
        )
        await gateway.uploads.round()
        _, sound = await bucket(tmp_path)
        assert sound.error is None


async def test_a_round_that_waits_for_the_store_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = asyncio.Event()
    async with running(tmp_path) as gateway:
        await gateway.create()
        with monkeypatch.context() as patch:
            patch.setattr(gateway.uploads._wal, "barrier", answered.wait)
            task = asyncio.create_task(gateway.uploads.round())
            while gateway.uploads.progress().running_ms is None:
                await asyncio.sleep(0)
            assert "; one has run for " in (await run(tmp_path)).stdout
            answered.set()
            await task
        _, uploads = await bucket(tmp_path)
        assert uploads.running_ms is None


async def test_producers_that_are_refused_are_wrong(tmp_path: Path) -> None:
    async with running(tmp_path, f"seqgate.cluster.unwritten.max.bytes={1 << 20}") as gateway:
        unwritten = gateway.gateway.services.partitions.flusher.unwritten
        assert unwritten is not None
        unwritten.sent(1 << 20)
        state, _ = await bucket(tmp_path, code=1)
        assert (state.unwritten_bytes, state.is_behind) == (1 << 20, True)
        assert "1,048,576 bytes are not durable yet: producers are refused" in (await run(tmp_path)).stdout
        unwritten.settled(1 << 20)


async def _refused() -> None:
    raise Refused("the credentials have expired")


async def _leave_out(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(_: object) -> None:
        raise OSError(5, "the disk is broken")

    await gateway.append()
    with monkeypatch.context() as patch:
        patch.setattr(gateway.uploads._uploads, "upload", failing)
        await gateway.uploads.round()
