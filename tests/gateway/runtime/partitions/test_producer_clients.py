"""The clients of producer ids, and their file, which has the newest verdicts, too."""

from __future__ import annotations

import asyncio
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.config import load_config
from seqgate.gateway.runtime.partitions import producer_clients
from seqgate.gateway.runtime.partitions.producer_clients import (
    MOST_BYTES,
    SEEN_EVERY_MS,
    ClientRow,
    ClientsFile,
    KeptRows,
    ProducerClients,
    VerdictRow,
    join_rows,
)
from seqgate.gateway.runtime.partitions.verdicts import UnstoredBatch, Verdicts
from seqgate.gateway.runtime.upkeep.background_jobs import GIVE_BACK_AFTER, FreedMemory
from seqgate.gateway.security.principals import ClientIdentity
from seqgate.gateway.tasks import end_tasks
from seqgate.log import Storage
from tests.gateway.handlers.support import NOW_MS, FixedClock
from tests.support.batches import Batch, records

ANN = ClientIdentity("checkout-service", "10.0.0.7", "User:ann", "librdkafka 2.11.0")
BOB = ClientIdentity("billing", "10.0.0.8", "User:ANONYMOUS", None)
DAY_MS = 86_400_000
NODE_ID = 4
GAP = int(ErrorCode.out_of_order_sequence_number)
BATCH = memoryview(Batch(records(5)).of(7, 2, 30).encode())
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


def test_clients_are_the_same_when_memory_was_given_back() -> None:
    known = clients()
    known.note(8, 3, BOB, NOW_MS)
    known.restore([ClientRow(7, 0, 2, NOW_MS - 5, *msgspec.structs.astuple(ANN))], NOW_MS)
    before = known.copy()
    freed = FreedMemory(clients=known)
    freed.give_back_if_due(GIVE_BACK_AFTER, 0)
    assert freed.give_back_if_due(GIVE_BACK_AFTER, 0)
    assert known.copy() == before
    assert (known.find(7, 2), known.find(7, 3), known.newest(8)) == (ANN, None, BOB)


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
        self.verdicts = Verdicts()
        self.path = directory / "producer-clients"
        self.connected: list[int] = []
        self.clock = FixedClock()
        self.file = ClientsFile(
            self.known,
            self.verdicts,
            load_config(overrides=settings),
            self.clock,
            storage or Storage(),
            str(directory),
            NODE_ID,
            lambda: self.connected,
        )
        self.file.load()

    def refuse(self, message: str = "a gap") -> UnstoredBatch:
        return self.verdicts.refusal("t", 3, BATCH, self.clock.now_ms(), GAP, ANN, message)

    def written(self) -> KeptRows:
        return KeptRows.decode(self.path.read_bytes())


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
    assert [row.producer_id for row in kept.written().clients] == [7]
    kept.connected = []
    kept.clock.time_ms += DAY_MS
    await kept.file.save()
    assert len(kept.known) == 0
    assert not kept.path.exists()


async def test_a_client_that_stays_away_is_forgotten_at_a_start(tmp_path: Path) -> None:
    row = ClientRow(7, 0, 0, NOW_MS - KEPT_MS, *msgspec.structs.astuple(ANN))
    ahead, late = (msgspec.structs.replace(row, seen_ms=NOW_MS + away) for away in (DAY_MS, -KEPT_MS - 1))
    (tmp_path / "producer-clients").write_bytes(KeptRows([row]).encode())
    assert Kept(tmp_path).known.find(7, 0) == ANN
    (tmp_path / "producer-clients").write_bytes(KeptRows([ahead]).encode())
    kept = Kept(tmp_path)  # the clock was set back
    kept.clock.time_ms += KEPT_MS + 1
    await kept.file.save()
    assert (len(kept.known), kept.path.exists()) == (0, False)
    kept.path.write_bytes(KeptRows([late]).encode())
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
    assert [row.producer_id for row in kept.written().clients] == [3, 4]
    kept.known.limit = 0
    await kept.file.save()
    assert (len(kept.known), kept.path.exists()) == (0, False)


async def test_the_newest_verdicts_outlive_the_process(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "seqgate.verdicts.kept.max=3")
    refused = [kept.refuse(f"gap {number}") for number in range(5)]
    await kept.file.save()
    assert mode_of(kept.path) == 0o600
    again = Kept(tmp_path, "seqgate.verdicts.kept.max=3")
    assert list(again.verdicts.newest) == refused[2:]
    assert again.verdicts.refused == {}, "metrics count since the start"
    later = again.refuse()
    assert later.number > refused[-1].number + 1_000, "a killed process has given numbers that no file has"
    await again.file.close()
    third = Kept(tmp_path, "seqgate.verdicts.kept.max=3")
    assert [each.message for each in third.verdicts.newest] == ["gap 3", "gap 4", "a gap"]
    assert third.verdicts.newest[-1] == later
    assert third.verdicts.newest[0].number > refused[-1].number, "else the console would show gap 3 again"


async def test_verdicts_are_written_when_there_are_others_and_0_removes_them(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.refuse()
    await kept.file.save()
    kept.path.unlink()
    await kept.file.save()
    assert not kept.path.exists()
    kept.refuse()
    await kept.file.save()
    assert len(kept.written().verdicts) == 2
    none = Kept(tmp_path, "seqgate.verdicts.kept.max=0")
    await none.file.save()
    assert not kept.path.exists()


async def test_a_verdict_is_forgotten_as_a_client_is(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.clock.time_ms += DAY_MS
    kept.refuse("ahead")
    await kept.file.save()
    kept = Kept(tmp_path)  # the clock was set back
    kept.clock.time_ms += KEPT_MS
    await kept.file.save()
    assert [row.batch.message for row in kept.written().verdicts] == ["ahead"]
    kept.clock.time_ms += 1
    await kept.file.save()
    assert (len(kept.verdicts.newest), kept.path.exists()) == (0, False)


async def test_a_torn_or_foreign_file_says_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.known.note(7, 0, ANN, NOW_MS)
    kept.refuse()
    await kept.file.close()
    whole = kept.path.read_bytes()
    flipped = (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole)))
    named = [msgspec.json.decode(whole) | {"version": 2}, {"version": 1, "checksum": 0, "producers": 3}, []]
    rows = kept.written()
    huge = msgspec.structs.replace(rows.clients[0], producer_id=2**63)  # no answer can carry it
    numbered = VerdictRow(NODE_ID, rows.verdicts[0].batch._replace(number=2**63))
    for content in (
        *(whole[:size] for size in range(len(whole))),
        *flipped,
        *map(msgspec.json.encode, named),
        b'{"version":' * 5_000,
        KeptRows([huge], rows.verdicts).encode(),
        KeptRows(rows.clients, [numbered]).encode(),
    ):
        kept.path.write_bytes(content)
        found = Kept(tmp_path)
        assert (len(found.known), len(found.verdicts.newest)) == (0, 0), content
    with kept.path.open("r+b") as file:
        file.truncate(MOST_BYTES + 1)
    assert KeptRows.read(Storage(), str(kept.path)) == ((), ())
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


async def test_a_stop_writes_after_a_write_that_failed_in_an_unexpected_way(tmp_path: Path) -> None:
    class Broken(Storage):
        is_broken = True

        def replace(self, path: str, content: bytes, written: Callable[[str], None] | None = None) -> str:
            if self.is_broken:
                raise MemoryError
            return super().replace(path, content, written)

    kept = Kept(tmp_path, storage=(storage := Broken()))
    kept.known.note(7, 0, ANN, NOW_MS)
    await kept.file.save()
    storage.is_broken = False
    await kept.file.close()
    assert {row.producer_id for row in kept.written().clients} == {7}


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
    assert {row.producer_id for row in kept.written().clients} == {7, 8}


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
    files = [KeptRows([rows[0], rows[3]]), KeptRows(), KeptRows([rows[1], rows[2]])]
    assert join_rows(files).clients == [rows[3], rows[1]]
    monkeypatch.setattr(producer_clients, "JOINED", 1)
    assert join_rows(files).clients == [rows[1]]
    assert not any(join_rows([KeptRows()]))


def test_verdicts_of_several_workers_that_one_takes_over_get_numbers_of_their_own() -> None:
    kept = Kept(Path("missing"))
    refused = [kept.refuse(name) for name in ("a", "b", "c")]
    of_two = [refused[0], refused[1]._replace(time_ms=NOW_MS + 9), refused[2], refused[0]]
    taken = Verdicts()
    taken.restore(of_two, NOW_MS + 9)
    assert [each.number for each in taken.newest] == [1, 2, 3, 4]
    assert [each.message for each in taken.newest] == ["a", "a", "c", "b"]


def test_a_number_at_the_end_of_64_bits_leaves_room_for_the_next(tmp_path: Path) -> None:
    """A file with a greater number would not be read: it would cost all clients and verdicts."""
    row = Kept(Path("missing")).refuse("a")._replace(number=2**63 - 1)
    taken = Verdicts()
    taken.restore([row], NOW_MS)
    taken.refusal("t", 0, None, NOW_MS, ErrorCode.invalid_producer_epoch, ANN, "b")
    path = str(tmp_path / "file")
    KeptRows([], [VerdictRow(1, batch) for batch in taken.newest]).write(Storage(), path)
    assert [kept.batch.message for kept in KeptRows.read(Storage(), path).verdicts] == ["a", "b"]
