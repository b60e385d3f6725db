"""Which data directories a gateway with a cluster takes, and which one without."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec
import pytest
from typer.testing import CliRunner

from seqgate.gateway.admin.request import CONSOLE_HISTORY, SOCKET_NAME, short_path
from seqgate.gateway.admin.restart.live import Passed, Restarts, control_address
from seqgate.gateway.admin.status import Status
from seqgate.gateway.backends import bucket_start
from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.backends.bucket_backend import BucketBackend
from seqgate.gateway.cli import app
from seqgate.gateway.cluster.objects.objects import ObjectStore, Refused
from seqgate.gateway.cluster.rebuild.local_session import read_local_session
from seqgate.gateway.cluster.wal import sessions as sessions_of_cluster
from seqgate.gateway.cluster.wal.session_wal import SessionFenced, SessionWal
from seqgate.gateway.cluster.wal.sessions import sessions
from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.runtime.topics.producer_ids import SEEN_FILE
from seqgate.log import Storage
from seqgate.log.directory.stored_logs import CLEAN_SHUTDOWN
from seqgate.log.rebuilding import BUCKET_SESSION
from seqgate.pid_allocator import LastSeen, ProducerIdAllocator
from seqgate.pid_allocator.redis_store import RedisBlockStore
from tests.gateway.backends.test_uploads import TOPIC, Running, running
from tests.gateway.cluster.wal.virtual import in_virtual_time
from tests.gateway.runtime.topics.shared_writers import count_in, open_writer
from tests.support.simulated_objects import SimulatedBucket


def gateway(path: Path, bucket: Path | None, *settings: str, restarts: Restarts | None = None) -> Gateway:
    overrides = [f"log.dirs={path}", "listeners=PLAINTEXT://127.0.0.1:0", *settings]
    if bucket is not None:
        bucket.mkdir(exist_ok=True)
        overrides.append(f"seqgate.cluster=file://{bucket}")
    return Gateway(load_config(overrides=overrides), restarts=restarts)


async def live(path: Path, bucket: Path | None) -> str:
    """Start a gateway and stop it; return its cluster id."""
    running = gateway(path, bucket)
    await running.start()
    cluster_id = running.services.node.cluster_id
    await running.stop()
    return cluster_id


async def refusal(path: Path, bucket: Path | None) -> str:
    with pytest.raises(StartFailed) as refused:
        await gateway(path, bucket).start()
    return str(refused.value)


async def test_the_cluster_id_is_that_of_the_bucket(tmp_path: Path) -> None:
    first = await live(tmp_path / "cache", tmp_path / "bucket")
    assert await live(tmp_path / "cache", tmp_path / "bucket") == first
    assert await live(tmp_path / "other", tmp_path / "bucket") == first


async def test_a_cache_is_refused_without_its_cluster(tmp_path: Path) -> None:
    await live(tmp_path / "cache", tmp_path / "bucket")
    told = await refusal(tmp_path / "cache", None)
    assert f"is a cache of file://{tmp_path / 'bucket'}, which has the records; start with --cluster" in told


async def test_a_cache_of_another_bucket_is_refused(tmp_path: Path) -> None:
    await live(tmp_path / "cache", tmp_path / "bucket")
    assert f"is a cache of file://{tmp_path / 'bucket'}, not of" in await refusal(
        tmp_path / "cache", tmp_path / "another"
    )


async def test_a_directory_with_records_that_no_bucket_has_is_refused(tmp_path: Path) -> None:
    await live(tmp_path / "data", None)
    before = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert "holds files that are no cache" in await refusal(tmp_path / "data", tmp_path / "bucket")
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == before


async def test_a_directory_whose_first_start_died_at_its_first_file_is_taken(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / f"{BUCKET_SESSION}.tmp").touch()
    await live(tmp_path / "cache", tmp_path / "bucket")
    assert not (tmp_path / "cache" / f"{BUCKET_SESSION}.tmp").exists()


async def test_a_start_on_the_directory_of_a_running_gateway_does_not_end_its_session(tmp_path: Path) -> None:
    running = gateway(tmp_path / "cache", tmp_path / "bucket")
    await running.start()
    assert isinstance(running.backend, BucketBackend)
    assert "is in use by another process" in await refusal(tmp_path / "cache", tmp_path / "bucket")
    registered = await sessions(running.machine.objects(running.config))
    assert [each.session for each in registered] == [0]
    await running.stop()
    assert not running.backend.wal.is_fenced


@pytest.mark.parametrize("lost", ["__cluster_metadata-0", ".kafka_cleanshutdown", "meta.properties"])
async def test_a_cache_that_somebody_changed_is_rebuilt(tmp_path: Path, lost: str) -> None:
    first = await live(tmp_path / "cache", tmp_path / "bucket")
    path = tmp_path / "cache" / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert await live(tmp_path / "cache", tmp_path / "bucket") == first
    assert path.exists()


async def test_a_rebuild_keeps_what_was_seen_of_the_producer_ids_in_redis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(Storage, "fsync_path", lambda _, path: flushed.append(path))
    first = gateway(tmp_path / "cache", tmp_path / "bucket", "seqgate.producer.id.store=redis")
    await first.start()
    store = first.services.coordinators.producer_ids._store
    assert isinstance(store, RedisBlockStore)
    assert store._last_seen is not None
    await store._last_seen.save(LastSeen("a", 5))
    path = tmp_path / "cache" / SEEN_FILE
    assert f"{path}.tmp" in flushed, "a power cut takes it"
    await first.stop()
    (tmp_path / "cache" / CLEAN_SHUTDOWN).unlink()
    before = path.read_bytes()
    await live(tmp_path / "cache", tmp_path / "bucket")
    assert path.read_bytes() == before


async def test_a_rebuild_keeps_the_history_of_the_console(tmp_path: Path) -> None:
    await live(tmp_path / "cache", tmp_path / "bucket")
    history = tmp_path / "cache" / CONSOLE_HISTORY
    history.write_bytes(b"samples")
    (tmp_path / "cache" / CLEAN_SHUTDOWN).unlink()
    await live(tmp_path / "cache", tmp_path / "bucket")
    assert history.read_bytes() == b"samples"


async def test_a_rebuild_keeps_the_control_socket_of_the_process_before(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    await live(cache, tmp_path / "bucket")
    (cache / CLEAN_SHUTDOWN).unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_path(cache / SOCKET_NAME) as short:
        listening.bind(short)
    passed = Passed(sockets={control_address(cache / SOCKET_NAME): [listening.detach()]})
    restarts = Restarts(passed, (), lambda _: None, data_dir=str(cache))
    again = gateway(cache, tmp_path / "bucket", restarts=restarts)
    await again.start()
    shown = await asyncio.to_thread(CliRunner().invoke, app, ["status", "--data-dir", str(cache)])
    await again.stop()
    assert shown.exit_code == 0, shown.stderr


async def _die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: object, name: str) -> None:
    """Start the gateway, which ends at this step."""

    async def die(*_: object) -> NoReturn:
        raise SessionFenced("the process is killed")

    with monkeypatch.context() as patch:
        patch.setattr(part, name, die)
        with pytest.raises((StartFailed, SessionFenced)):
            await gateway(tmp_path / "cache", tmp_path / "bucket").start()


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "crashed"])
async def test_starts_that_die_before_they_join_keep_the_node_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, is_clean: bool
) -> None:
    """Their sessions are those of this directory, not of gateways that live elsewhere. So is that of the
    crash before them, whose lease nobody waits for.
    """
    first = gateway(tmp_path / "cache", tmp_path / "bucket")
    await first.start()
    for name in ("cache", "bucket") if not is_clean else ():
        without_sockets = shutil.ignore_patterns(SOCKET_NAME)
        shutil.copytree(tmp_path / name, tmp_path / "crashed" / name, ignore=without_sockets)
    await first.stop()
    for name in ("cache", "bucket") if not is_clean else ():
        shutil.rmtree(tmp_path / name)
        shutil.move(tmp_path / "crashed" / name, tmp_path / name)
    registered = (sessions_of_cluster, "check_not_shortened")
    steps = [registered, (bucket_start.BucketStart, "_seal"), (SessionWal, "barrier"), registered]
    for part, step in steps:
        await _die(tmp_path, monkeypatch, part, step)
    again = gateway(tmp_path / "cache", tmp_path / "bucket")
    await again.start()
    assert again.config.int("node.id") == first.config.int("node.id")
    assert "may still answer clients" not in caplog.text
    await again.stop()
    local = read_local_session(Storage(), str(tmp_path / "cache"))
    assert local is not None
    assert (local.wal_end is not None, local.earlier) == (True, ())


def contents(path: Path) -> dict[Path, bytes]:
    return {entry: entry.read_bytes() for entry in path.rglob("*") if entry.is_file()}


@pytest.mark.parametrize("is_replaced", [False, True], ids=["emptied", "replaced"])
async def test_a_bucket_that_lost_the_session_of_the_cache_is_refused(
    tmp_path: Path, *, is_replaced: bool
) -> None:
    bucket = tmp_path / "bucket"
    await live(tmp_path / "cache", bucket)
    shutil.rmtree(bucket)
    if is_replaced:
        await live(tmp_path / "other", bucket)
    else:
        bucket.mkdir()
    cache = contents(tmp_path / "cache")
    objects = {path for path in contents(bucket) if path.name != ".lock"}
    told = await refusal(tmp_path / "cache", bucket)
    assert "has no session 0 of this cluster, so somebody emptied or replaced the bucket" in told
    assert contents(tmp_path / "cache") == cache
    assert {path for path in contents(bucket) if path.name != ".lock"} == objects


async def test_a_stop_with_a_log_that_is_offline_is_not_clean(tmp_path: Path) -> None:
    running = gateway(tmp_path / "cache", tmp_path / "bucket")
    await running.start()
    log = next(iter(running._log_directory.logs()))
    log.go_offline("planted")
    assert log.recovery_point == log.log_end_offset
    await running.stop()
    local = read_local_session(Storage(), str(tmp_path / "cache"))
    assert local is not None
    assert local.wal_end is None


async def test_a_stop_on_a_directory_that_another_session_has_is_not_clean(tmp_path: Path) -> None:
    running = gateway(tmp_path / "cache", tmp_path / "bucket")
    await running.start()
    path = tmp_path / "cache" / BUCKET_SESSION
    later = path.read_bytes().replace(b'"session":0', b'"session":1')
    assert later != path.read_bytes()
    path.write_bytes(later)
    await running.stop()
    assert path.read_bytes() == later


class _ClosedOnce:
    """A store that refuses every call, and counts how often it is closed."""

    def __init__(self) -> None:
        self.closed = 0

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        def refuse(*_: object) -> NoReturn:
            raise Refused("access denied")

        return refuse

    async def close(self) -> None:
        self.closed += 1


async def test_a_start_that_fails_closes_the_store(tmp_path: Path) -> None:
    store = _ClosedOnce()
    failing = gateway(tmp_path / "cache", tmp_path / "bucket")
    failing.machine.objects = lambda _: cast("ObjectStore", store)
    with pytest.raises(StartFailed, match="access denied"):
        await failing.start()
    assert store.closed == 1


async def test_the_status_shows_the_calls_to_the_bucket_and_their_price(tmp_path: Path) -> None:
    running = gateway(tmp_path / "cache", tmp_path / "bucket")
    await running.start()
    command = ["status", "--data-dir", str(tmp_path / "cache")]
    shown = await asyncio.to_thread(CliRunner().invoke, app, command)
    answer = await asyncio.to_thread(CliRunner().invoke, app, [*command, "--json"])
    await running.stop()
    bucket = msgspec.json.decode(answer.stdout, type=Status).bucket
    assert shown.exit_code == answer.exit_code == 0
    assert bucket is not None
    assert bucket.address == f"file://{tmp_path / 'bucket'}"
    assert bucket.puts > 16, "sixteen writers race for the object of the probe"
    assert min(bucket.gets, bucket.lists, bucket.deletes, bucket.bytes_up, bucket.bytes_down) > 0
    assert bucket.us_dollars == pytest.approx(
        ((bucket.puts + bucket.lists) * 0.005 + bucket.gets * 0.0004) / 1000
    )
    assert " puts, " in shown.stdout
    assert "by Amazon's list for S3" in shown.stdout


async def test_the_status_without_a_bucket_shows_no_calls(tmp_path: Path) -> None:
    running = gateway(tmp_path / "data", None)
    await running.start()
    command = ["status", "--data-dir", str(tmp_path / "data")]
    shown = await asyncio.to_thread(CliRunner().invoke, app, command)
    await running.stop()
    assert shown.exit_code == 0
    assert "bucket" not in shown.stdout.replace(str(tmp_path), "")


async def test_a_start_after_a_clean_stop_rebuilds_nothing_and_reads_later_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live(tmp_path / "cache", tmp_path / "bucket")

    async def rebuild(*_: object) -> NoReturn:
        raise AssertionError("the directory is made anew")

    with monkeypatch.context() as patch:
        patch.setattr("seqgate.gateway.backends.bucket_start.rebuild_directory", rebuild)
        again = gateway(tmp_path / "cache", tmp_path / "bucket")
        await again.start()
    assert isinstance(again.backend, BucketBackend)
    journal = again.backend._journal
    assert journal is not None
    changes = [path for path in (tmp_path / "bucket" / "meta").iterdir() if path.name.isdecimal()]
    assert journal.copied == (len(changes), again.services.topics.metadata_log.last_offset + 1)
    await again.stop()


def _other(tmp_path: Path) -> AbstractAsyncContextManager[Running]:
    return running(tmp_path, f"log.dirs={tmp_path / 'other'}", "node.id=2")


async def _check_takeover(tmp_path: Path) -> None:
    """Start a gateway that must adopt three records of `_other`, and go on behind them."""
    async with running(tmp_path, "node.id=1") as second:
        registry = second.gateway.services.partitions.registry
        while registry.get(TOPIC, 0) is None:
            await asyncio.sleep(0)
        assert second.partition.log.log_end_offset == 3
        await second.append(1)
        assert second.partition.log.log_end_offset == 4


async def test_records_of_a_gateway_that_ran_during_the_start_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It led its partitions in the same leader epoch as before, and has ended when the start goes on."""
    async with _other(tmp_path) as first:
        await first.create()
        await first.append(1)
    rebuild = bucket_start.rebuild_directory

    async def slow(*given: Any) -> Any:
        made = await rebuild(*given)
        monkeypatch.setattr(bucket_start, "rebuild_directory", rebuild)
        async with _other(tmp_path) as meanwhile:
            await meanwhile.append(2)
        return made

    monkeypatch.setattr(bucket_start, "rebuild_directory", slow)
    await _check_takeover(tmp_path)


async def test_records_of_a_gateway_that_joined_before_the_start_claims_producer_ids_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim folds the registration in, before this gateway follows who leads what."""
    async with _other(tmp_path) as first:
        await first.create()
        await first.append(1)
    claim = ProducerIdAllocator.start

    async def late(allocator: ProducerIdAllocator) -> bool:
        monkeypatch.setattr(ProducerIdAllocator, "start", claim)
        async with _other(tmp_path) as meanwhile:
            has_ids = await claim(allocator)
            await meanwhile.append(2)
        return has_ids

    monkeypatch.setattr(ProducerIdAllocator, "start", late)
    await _check_takeover(tmp_path)


def test_the_metadata_is_followed_after_a_refused_read_until_the_journal_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        bucket = SimulatedBucket()
        follower, other = [await open_writer(tmp_path, bucket, number) for number in range(2)]

        async def refuse(_: int) -> NoReturn:
            monkeypatch.undo()
            raise Refused("no right to read")

        monkeypatch.setattr(follower.shared, "read", refuse)
        backend = gateway(tmp_path / "cache", tmp_path / "bucket").backend
        assert isinstance(backend, BucketBackend)
        following = asyncio.create_task(backend._follow_metadata(follower.journal, follower.metadata))
        await other.count()
        await asyncio.sleep(10)
        assert count_in(follower.metadata.image) == 1
        follower.journal.give_up("the gateway stops")
        await other.count()
        await asyncio.sleep(10)
        assert following.done()

    in_virtual_time(scene())
