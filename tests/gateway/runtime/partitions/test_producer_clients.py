"""The clients of producer ids, and the report of clients that send batches again."""

from __future__ import annotations

import asyncio
import logging
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from seqgate.gateway.config import load_config
from seqgate.gateway.runtime.partitions import producer_clients
from seqgate.gateway.runtime.partitions.producer_clients import (
    COUNTED,
    REPORT_S,
    REPORTED,
    SEEN_EVERY_MS,
    ClientRow,
    ClientsFile,
    ProducerClients,
    RetryReport,
    decode_clients,
    encode_clients,
    join_clients,
)
from seqgate.gateway.security.principals import ClientIdentity
from seqgate.gateway.tasks import end_tasks
from seqgate.log import Storage
from tests.gateway.handlers.support import NOW_MS, FixedClock

ANN = ClientIdentity("checkout-service", "10.0.0.7", "User:ann", "librdkafka 2.11.0")
BOB = ClientIdentity("billing", "10.0.0.8", "User:ANONYMOUS", None)
DAY_MS = 86_400_000
KEPT_MS = 7 * DAY_MS
"""The default of `transactional.id.expiration.ms`, the longer of the two expirations."""


def clients(limit: int = 10) -> ProducerClients:
    found = ProducerClients()
    found.limit = limit
    return found


@pytest.mark.parametrize(
    ("client", "text"),
    [
        (ANN, "checkout-service (10.0.0.7, librdkafka 2.11.0, User:ann)"),
        (BOB, "billing (10.0.0.8)"),
        (ClientIdentity("", "::1", "User:ANONYMOUS", "kafka-python 3.0"), "a client (::1, kafka-python 3.0)"),
    ],
)
def test_a_client_in_words(client: ClientIdentity, text: str) -> None:
    assert str(client) == text


def test_a_producer_is_of_the_client_that_was_noted_last() -> None:
    known = clients()
    assert known.find(7, 0) is None
    assert known.newest(7) is None
    known.note(7, 0, ANN, NOW_MS)
    known.note(7, 1, BOB, NOW_MS)
    assert (known.find(7, 1), known.find(7, 2), known.newest(7)) == (BOB, BOB, BOB)
    assert known.find(7, 0) is None  # the partition knows an epoch that was another client's


def test_the_epochs_of_one_client_are_its_own_from_the_first_on() -> None:
    """A transaction of version 2 has an epoch of its own; a partition keeps the one that wrote there last."""
    known = clients()
    for epoch in (4, 5, 6):
        known.note(7, epoch, ANN, NOW_MS)
    assert [known.find(7, epoch) for epoch in (3, 4, 5, 9)] == [None, ANN, ANN, ANN]


def test_a_batch_without_a_producer_is_nobodys() -> None:
    known = clients()
    known.note(-1, -1, ANN, NOW_MS)
    assert len(known) == 0


def test_the_client_that_was_noted_longest_ago_is_dropped() -> None:
    known = clients(limit=3)
    for producer_id in (1, 2, 3, 1, 4):
        known.note(producer_id, 0, ANN, NOW_MS)
    assert [known.find(producer_id, 0) for producer_id in (1, 2, 3, 4)] == [ANN, None, ANN, ANN]
    known.limit = 1
    known.note(5, 0, ANN, NOW_MS)
    assert (len(known), known.find(5, 0)) == (1, ANN)
    known.limit = 0
    known.note(6, 0, ANN, NOW_MS)
    assert len(known) == 0


# The file with the clients.


class Kept:
    """The clients of a process, and their file in a data directory. Time stands still."""

    def __init__(self, directory: Path, *settings: str, storage: Storage | None = None) -> None:
        self.known = clients()
        self.path = directory / "producer-clients"
        self.connected: list[int] = []
        self.clock = FixedClock()
        self.file = ClientsFile(
            self.known,
            load_config(overrides=settings),
            self.clock,
            storage or Storage(),
            str(directory),
            lambda: self.connected,
        )
        self.file.load()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_the_next_process_knows_the_epochs_that_a_client_has_used(tmp_path: Path) -> None:
    """What happened between the last write and a crash is unknown, so later epochs may be another client's."""
    before = Kept(tmp_path)
    assert not before.path.exists()
    before.known.note(7, 4, ANN, NOW_MS)
    before.known.note(7, 6, ANN, NOW_MS)
    before.known.note(8, 0, BOB, NOW_MS)
    await before.file.save()
    assert mode_of(before.path) == 0o600
    known = Kept(tmp_path).known
    assert [known.find(7, epoch) for epoch in (3, 4, 6, 7)] == [None, ANN, ANN, None]
    assert (known.find(8, 0), known.newest(8), known.find(9, 0)) == (BOB, None, None)
    known.note(7, 6, ANN, NOW_MS)
    assert [known.find(7, epoch) for epoch in (4, 6, 9)] == [ANN] * 3
    known.note(8, 2, BOB, NOW_MS)  # nobody knows whose epoch 1 was
    assert [known.find(8, epoch) for epoch in (0, 1, 2, 3)] == [None, None, BOB, BOB]
    assert known.newest(8) == BOB


async def test_the_file_is_written_when_the_table_has_changed(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.known.note(7, 0, ANN, NOW_MS)
    await kept.file.save()
    kept.path.unlink()
    kept.known.find(7, 0)
    kept.connected = [7, 9, -1]
    kept.clock.time_ms += SEEN_EVERY_MS - 1
    await kept.file.save()
    assert not kept.path.exists()
    kept.known.note(7, 0, ANN, kept.clock.now_ms())
    await kept.file.close()
    assert kept.path.exists()


@pytest.mark.parametrize("setting", ["producer.id.expiration.ms", "transactional.id.expiration.ms"])
async def test_a_client_is_forgotten_with_its_producer(tmp_path: Path, setting: str) -> None:
    short = ("producer.id.expiration.ms=1", "transactional.id.expiration.ms=1", f"{setting}={DAY_MS}")
    kept = Kept(tmp_path, *short)
    for producer_id in (7, 8):
        kept.known.note(producer_id, 0, ANN, NOW_MS)
    kept.connected = [7]
    kept.clock.time_ms += DAY_MS
    await kept.file.save()
    assert (kept.known.find(7, 0), kept.known.find(8, 0)) == (ANN, ANN)
    kept.clock.time_ms += 1
    await kept.file.save()
    assert (kept.known.find(7, 0), kept.known.find(8, 0)) == (ANN, None)
    assert [row.producer_id for row in decode_clients(kept.path.read_bytes())] == [7]
    kept.connected = []
    kept.clock.time_ms += DAY_MS
    await kept.file.save()
    assert len(kept.known) == 0
    assert not kept.path.exists()


async def test_a_client_that_stays_away_is_forgotten_at_a_start(tmp_path: Path) -> None:
    row = ClientRow(7, 0, 0, NOW_MS - KEPT_MS, *msgspec.structs.astuple(ANN))
    ahead, late = (msgspec.structs.replace(row, seen_ms=NOW_MS + away) for away in (DAY_MS, -KEPT_MS - 1))
    (tmp_path / "producer-clients").write_bytes(encode_clients([row]))
    assert Kept(tmp_path).known.find(7, 0) == ANN
    (tmp_path / "producer-clients").write_bytes(encode_clients([ahead]))
    kept = Kept(tmp_path)  # the clock was set back
    kept.clock.time_ms += KEPT_MS + 1
    await kept.file.save()
    assert (len(kept.known), kept.path.exists()) == (0, False)
    kept.path.write_bytes(encode_clients([late]))
    late_kept = Kept(tmp_path)
    assert len(late_kept.known) == 0
    await late_kept.file.close()
    assert not kept.path.exists()


async def test_the_limit_holds_in_the_file_and_0_removes_it(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    for producer_id in range(1, 5):
        kept.known.note(producer_id, 0, ANN, NOW_MS + producer_id)
    kept.known.limit = 2
    await kept.file.save()
    assert [row.producer_id for row in decode_clients(kept.path.read_bytes())] == [3, 4]
    kept.known.limit = 0
    await kept.file.save()
    assert (len(kept.known), kept.path.exists()) == (0, False)


async def test_a_torn_or_foreign_file_says_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.known.note(7, 0, ANN, NOW_MS)
    await kept.file.close()
    whole = kept.path.read_bytes()
    flipped = (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole)))
    named = [msgspec.json.decode(whole) | {"version": 2}, {"version": 1, "checksum": 0, "producers": 3}, []]
    for content in (
        *(whole[:size] for size in range(len(whole))),
        *flipped,
        *map(msgspec.json.encode, named),
        b'{"version":' * 5_000,
    ):
        kept.path.write_bytes(content)
        assert len(Kept(tmp_path).known) == 0, content
    kept.path.unlink()
    kept.path.mkdir()
    damaged = Kept(tmp_path)  # can't be read at all
    assert len(damaged.known) == 0


async def test_a_file_that_cannot_be_written_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "missing"
    kept = Kept(directory)
    kept.known.note(7, 0, ANN, NOW_MS)
    for _ in range(3):
        await kept.file.save()
    (line,) = caplog.messages
    assert line.startswith("the clients of producers are not kept: ")
    directory.mkdir()
    await kept.file.save()
    assert Kept(directory).known.find(7, 0) == ANN


async def test_a_stop_writes_after_a_write_that_is_under_way(tmp_path: Path) -> None:
    released = threading.Event()

    class Slow(Storage):
        def replace(self, path: str, content: bytes, written: Callable[[str], None] | None = None) -> str:
            released.wait()
            return super().replace(path, content, written)

    kept = Kept(tmp_path, storage=Slow())
    kept.known.note(7, 0, ANN, NOW_MS)
    job = asyncio.create_task(kept.file.save())
    await asyncio.sleep(0)
    await end_tasks(job)
    kept.known.note(8, 0, BOB, NOW_MS)
    closing = asyncio.create_task(kept.file.close())
    await asyncio.sleep(0)
    released.set()
    await closing
    assert {row.producer_id for row in decode_clients(kept.path.read_bytes())} == {7, 8}


def test_the_files_of_workers_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fenced client may still be connected to another worker, and so be the one that was seen last."""
    rows = [
        ClientRow(producer_id, epoch, epoch, NOW_MS + seen, *msgspec.structs.astuple(client))
        for producer_id, epoch, seen, client in (
            (7, 0, 9, ANN),
            (7, 1, 3, BOB),
            (8, 0, 1, ANN),
            (8, 0, 2, BOB),
        )
    ]
    files = [encode_clients([rows[0], rows[3]]), b"torn", encode_clients([rows[1], rows[2]])]
    assert decode_clients(join_clients(files) or b"") == [rows[3], rows[1]]
    monkeypatch.setattr(producer_clients, "JOINED", 1)
    assert decode_clients(join_clients(files) or b"") == [rows[1]]
    assert join_clients([]) is None
    assert join_clients([b"torn"]) is None


# The report of retries in the log.


class Later:
    """Stands for the event loop: keeps what is to be called, and when."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.calls.append((delay_s, call))


def test_one_line_tells_how_many_batches_a_client_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    later, report = Later(monkeypatch), RetryReport()
    for partition in (3, 3, 4, 3, 3, 3):
        report.count(ANN, "orders", partition)
    ((delay_s, call),) = later.calls
    assert (delay_s, caplog.messages) == (REPORT_S, [])
    call()
    client = "checkout-service (10.0.0.7, librdkafka 2.11.0, User:ann)"
    assert caplog.messages == [
        f"{client} retried 5 batches of orders-3",
        f"{client} retried 1 batch of orders-4",
    ]
    report.count(ANN, "orders", 3)
    assert len(later.calls) == 2
    caplog.clear()
    report.report()
    assert caplog.messages == [f"{client} retried 1 batch of orders-3"]


def test_a_report_has_few_lines_and_counts_all(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client sends another client id with each batch."""
    caplog.set_level(logging.INFO)
    later, report = Later(monkeypatch), RetryReport()
    for number in range(COUNTED + 500):
        report.count(msgspec.structs.replace(ANN, client_id=str(number)), "t", 0)
    assert len(later.calls) == 1
    report.report()
    assert len(caplog.messages) == REPORTED + 1
    assert caplog.messages[-1] == f"others retried {COUNTED + 500 - REPORTED:,} batches"
