"""`seqgate cluster import`: a data directory in a bucket, from which a gateway starts with everything."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TypeVar

import msgspec
import pytest
from click.testing import Result
from typer.testing import CliRunner

from seqgate.gateway.admin.cluster.importing import Imported
from seqgate.gateway.admin.cluster.verify import Verification
from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.cli import app
from seqgate.gateway.cluster.objects.directory_objects import DirectoryObjects
from seqgate.gateway.cluster.objects.objects import Buffer, ObjectStore, Refused, StoreFailed, joined
from seqgate.gateway.cluster.wal.sessions import CHANGE_MAGIC
from seqgate.gateway.config import Config, load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.records import UnregisterBrokerRecord
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.runtime.topics import metadata_log
from seqgate.gateway.workers.metadata_writer import MetadataWriter
from seqgate.gateway.workers.worker_brokers import registration
from seqgate.log import Storage
from tests.gateway.backends.test_uploads import TOPIC, Running, running
from tests.gateway.metadata.clusters import broker
from tests.support.batches import Batch, records

T = TypeVar("T")
SHARE = 0.2


@asynccontextmanager
async def local(path: Path) -> AsyncIterator[Running]:
    """Run a gateway without a bucket."""
    gateway = Gateway(load_config(overrides=[f"log.dirs={path}", "listeners=PLAINTEXT://127.0.0.1:0"]))
    await gateway.start()
    try:
        yield Running(gateway, path)
    finally:
        await gateway.stop()


def content(gateway: Running) -> list[tuple[int, bytes]]:
    """Return all batches of the topic, with their offsets."""
    log = gateway.partition.log
    return [
        (batch.base_offset, bytes(view))
        for batch, view in log.batches(log.log_start_offset, log.log_end_offset, 1 << 20)
    ]


async def _write(path: Path) -> None:
    """Let a gateway write ten batches into several segments, two of them by an idempotent producer."""
    async with local(path) as gateway:
        await gateway.create(internal_segment_bytes=200)
        for _ in range(8):
            await gateway.append()
        for sequence in (0, 1):
            batch = Batch(records(1), producer_id=7, producer_epoch=0, base_sequence=sequence)
            info = gateway.partition.append(batch.encode(), gateway.gateway.clock.now_ms())
            assert await gateway.partition.persisted(info.last_offset)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "data"
    asyncio.run(_write(path))
    return path


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Path:
    """The data directory of a gateway that has stopped. Beside it lies an empty bucket."""
    (tmp_path / "bucket").mkdir()
    return shutil.copytree(written, tmp_path / "data")


def run(data: Path, *options: str) -> Result:
    bucket = f"file://{data.parent / 'bucket'}"
    return CliRunner().invoke(app, ["cluster", "import", str(data), "--cluster", bucket, *options])


def imported(data: Path) -> Imported:
    result = run(data, "--json")
    assert result.exit_code == 0, result.output
    return msgspec.json.decode(result.stdout, type=Imported)


def refusal(data: Path, *options: str) -> str:
    result = run(data, *options)
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.stderr
    return result.stderr


def verified(data: Path) -> Verification:
    command = ["cluster", "verify", "--json", "--cluster", f"file://{data.parent / 'bucket'}"]
    return msgspec.json.decode(CliRunner().invoke(app, command).stdout, type=Verification)


async def original(data: Path) -> tuple[str, list[tuple[int, bytes]]]:
    """Return the cluster id and the content of the directory, by a gateway on a copy."""
    async with local(shutil.copytree(data, data.parent / "copy")) as gateway:
        return gateway.gateway.services.node.cluster_id, content(gateway)


def parts(data: Path) -> set[str]:
    return {path.name for path in (data.parent / "bucket" / "parts").rglob("0*-*")}


async def test_a_gateway_starts_from_the_bucket_with_all_records_and_producers(data: Path) -> None:
    cluster_id, batches = await original(data)
    before = {path.name: path.read_bytes() for path in (data / f"{TOPIC}-0").iterdir()}
    done = await asyncio.to_thread(imported, data)
    assert (done.cluster_id, done.partitions) == (cluster_id, 1)
    assert done.parts > 3
    assert (await asyncio.to_thread(verified, data)).damaged == []
    async with running(data.parent) as gateway:
        assert gateway.gateway.services.node.cluster_id == cluster_id
        assert content(gateway) == batches
        retried = Batch(records(1), producer_id=7, producer_epoch=0, base_sequence=1).encode()
        again = gateway.partition.append(retried, gateway.gateway.clock.now_ms())
        assert (again.base_offset, again.is_duplicate) == (9, True)
        await gateway.append(2)
        await gateway.uploads.round()
    assert (await asyncio.to_thread(verified, data)).damaged == []
    assert {name: (data / f"{TOPIC}-0" / name).read_bytes() for name in before} == before


async def test_metadata_that_a_start_has_shortened(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "SHORTENED_FROM_BYTES", 0)
    monkeypatch.setattr(metadata_log, "SHORTEN_FACTOR", 0)
    async with local(data) as gateway:
        assert gateway.gateway.services.topics.metadata_log.log.log_start_offset > 0
        batches = content(gateway)
    await asyncio.to_thread(imported, data)
    assert (await asyncio.to_thread(verified, data)).damaged == []
    async with running(data.parent) as gateway:
        assert content(gateway) == batches


async def test_an_import_can_not_go_on_with_metadata_shortened_since(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: object) -> None:
        raise Refused("403 Forbidden")

    with monkeypatch.context() as broken:
        broken.setattr("seqgate.gateway.admin.cluster.importing.end_import", refuse)
        assert "403 Forbidden" in await asyncio.to_thread(refusal, data)
    monkeypatch.setattr(metadata_log, "SHORTENED_FROM_BYTES", 0)
    monkeypatch.setattr(metadata_log, "SHORTEN_FACTOR", 0)
    async with local(data):
        pass
    assert "was used since an import that ended early; empty" in await asyncio.to_thread(refusal, data)


async def test_no_session_has_the_number_of_a_worker_that_ended(data: Path) -> None:
    """The other gateways would take it for that worker's, and end it while it starts."""
    epochs = range(1, 8)
    records = [record for epoch in epochs for record in (broker(1, epoch), UnregisterBrokerRecord(1, epoch))]
    async with local(data) as gateway:
        await gateway.gateway.services.topics.metadata_log.commit(lambda _: Decision(records, None))
    await asyncio.to_thread(imported, data)
    async with running(data.parent) as gateway:
        assert gateway.session not in epochs


def test_the_command_says_what_to_do_next(data: Path) -> None:
    told = run(data).stdout
    bucket = f"file://{data.parent / 'bucket'}"
    assert f"are in {bucket}, and were read back" in told
    assert f"seqgate serve --cluster {bucket} --data-dir NEW_DIRECTORY" in told


async def test_a_directory_after_a_crash_is_recovered_first(data: Path) -> None:
    _, batches = await original(data)
    (data / ".kafka_cleanshutdown").unlink()
    last = max((data / f"{TOPIC}-0").glob("*.log"))
    last.write_bytes(last.read_bytes() + b"torn")
    await asyncio.to_thread(imported, data)
    async with running(data.parent) as gateway:
        assert content(gateway) == batches


def test_a_bucket_with_a_cluster_is_refused(data: Path) -> None:
    imported(data)
    assert "already; name an address that holds nothing" in refusal(data)


def test_a_bucket_with_other_objects_is_refused(data: Path) -> None:
    (data.parent / "bucket" / "letters").write_bytes(b"dear")
    assert "holds the object letters, and no cluster" in refusal(data)


def test_what_is_no_data_directory_is_refused(data: Path) -> None:
    shutil.rmtree(data / "__cluster_metadata-0")
    assert "is no data directory of a gateway" in refusal(data)


def test_the_directory_of_another_node_is_refused(data: Path) -> None:
    assert "belongs to node.id 1, this gateway is node.id 5" in refusal(data, "--set", "node.id=5")


async def test_the_directory_of_a_running_gateway_is_refused(data: Path) -> None:
    async with local(data):
        assert f"a gateway runs on {data}; stop it first" in await asyncio.to_thread(refusal, data)
    assert not list((data.parent / "bucket").iterdir())


async def test_a_cache_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    assert "is a cache of a bucket, which has its records already" in await asyncio.to_thread(
        refusal, tmp_path / "cache"
    )


def test_a_directory_that_workers_should_lead_is_refused(data: Path) -> None:
    """A start of workers ended before they had their files: no gateway of the bucket would lead for them."""
    metadata = MetadataWriter(Storage(), str(data), str(data), lambda: 1_000)
    metadata.change([registration(2, 2, uuid.uuid4(), {}, None)])
    metadata.close()
    assert "start a gateway on it without --workers" in refusal(data)
    assert not any((data.parent / "bucket").iterdir())


def test_damaged_batches_are_not_imported(data: Path) -> None:
    segment = min((data / f"{TOPIC}-0").glob("*.log"))
    damaged = bytearray(segment.read_bytes())
    damaged[70] ^= 4
    segment.write_bytes(damaged)
    told = refusal(data)
    assert f"{data} can't be imported" in told
    assert "`seqgate repair` shows damaged batches" in told


# --- imports that end early

Change = Callable[[str, bytes], bytes]
Changing = Callable[[Change], None]


class _Store(DirectoryObjects):
    """A directory whose `change` may alter what is created, or refuse it."""

    def __init__(self, path: Path, change: Change) -> None:
        super().__init__(path)
        self._change = change

    async def create(self, key: str, content: bytes | Sequence[Buffer]) -> None:
        await super().create(key, self._change(key, joined(content)))


@pytest.fixture
def changing(monkeypatch: pytest.MonkeyPatch, data: Path) -> Changing:
    """Let the commands use a store that changes what is created."""

    def use(change: Change) -> None:
        def objects(_machine: Machine, _config: Config) -> ObjectStore:
            return _Store(data.parent / "bucket", change)

        monkeypatch.setattr(Machine, "objects", objects)

    return use


def refuse_changes_after(count: int) -> Change:
    """Return a function that refuses the changes of the metadata after so many."""
    left = [count]

    def change(key: str, content: bytes) -> bytes:
        left[0] -= content.startswith(CHANGE_MAGIC)
        if left[0] < 0:
            raise Refused("the store is full")
        return content

    return change


def cut_short(data: Path, changing: Changing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an import upload the topic and fail at the metadata."""
    with monkeypatch.context():
        changing(refuse_changes_after(0))
        assert "the store is full" in refusal(data)
    monkeypatch.undo()


async def test_no_gateway_starts_from_half_a_bucket(
    data: Path, changing: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(cut_short, data, changing, monkeypatch)
    with pytest.raises(StartFailed, match="is not finished; run `seqgate cluster import`, or"):
        async with running(data.parent):
            raise AssertionError("the gateway serves")


async def test_an_import_is_resumed(data: Path, changing: Changing, monkeypatch: pytest.MonkeyPatch) -> None:
    _, batches = await original(data)
    await asyncio.to_thread(cut_short, data, changing, monkeypatch)
    before = parts(data)
    assert len(before) > 2
    await asyncio.to_thread(imported, data)
    assert before == parts(data)
    assert (await asyncio.to_thread(verified, data)).unnamed == 0
    async with running(data.parent) as gateway:
        assert content(gateway) == batches


async def test_what_was_written_meanwhile_is_imported_too(
    data: Path, changing: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(cut_short, data, changing, monkeypatch)
    async with local(data) as gateway:
        await gateway.append(4)
        batches = content(gateway)
    await asyncio.to_thread(imported, data)
    async with running(data.parent) as gateway:
        assert content(gateway) == batches


async def test_an_import_is_resumed_amid_the_metadata(
    data: Path, changing: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as small:
        small.setattr("seqgate.gateway.cluster.metadata.shared_log.PIECE_BYTES", 1)
        changing(refuse_changes_after(1))
        assert "the store is full" in await asyncio.to_thread(refusal, data)
    monkeypatch.undo()
    async with local(data) as gateway:  # the directory grows, by a block of producer ids at least
        await gateway.append(1)
        batches = content(gateway)
    await asyncio.to_thread(imported, data)
    assert (await asyncio.to_thread(verified, data)).damaged == []
    async with running(data.parent) as gateway:
        assert content(gateway) == batches


def test_another_directory_can_not_finish_the_import(
    data: Path, changing: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_short(data, changing, monkeypatch)
    other = data.parent / "other"
    asyncio.run(_write(other))
    assert f"an import or a restore of {data} on " in refusal(other)


def test_a_copy_that_differs_is_told(data: Path, changing: Changing) -> None:
    def change(key: str, content: bytes) -> bytes:
        return content[:40] + b"\xff" + content[41:] if key.startswith("parts/") else content

    changing(change)
    assert "is damaged: the CRC-32C of the bytes" in refusal(data)
    assert (data.parent / "bucket" / "import").exists()


class _Failing(DirectoryObjects):
    """A directory that fails a share of the calls: before or after their effect."""

    def __init__(self, path: Path, chance: Random) -> None:
        super().__init__(path)
        self._chance = chance
        self.failures = 0

    async def _maybe(self, call: Awaitable[T]) -> T:
        if self._chance.random() < SHARE:
            self.failures += 1
            if self._chance.random() < 0.5:
                await call
            elif isinstance(call, Coroutine):
                call.close()
            raise StoreFailed("503")
        return await call

    async def create(self, key: str, content: bytes | Sequence[Buffer]) -> None:
        await self._maybe(super().create(key, content))

    async def get(self, key: str, first: int = 0, size_bytes: int | None = None) -> bytes:
        return await self._maybe(super().get(key, first, size_bytes))

    async def replace(self, key: str, content: bytes, version: str | None) -> str:
        return await self._maybe(super().replace(key, content, version))

    async def delete(self, key: str) -> None:
        await self._maybe(super().delete(key))


async def test_an_import_outlives_the_failures_of_a_store(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, batches = await original(data)
    store = _Failing(data.parent / "bucket", Random(7))
    with monkeypatch.context() as patched:
        patched.setattr(Machine, "objects", lambda _machine, _config: store)
        await asyncio.to_thread(imported, data)
    assert store.failures > 3
    assert (await asyncio.to_thread(verified, data)).damaged == []
    async with running(data.parent) as gateway:
        assert content(gateway) == batches
