from __future__ import annotations

import logging
import uuid
from pathlib import Path

import pytest

from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.metadata.records import PartitionRecord
from seqgate.gateway.runtime.partitions.producer_clients import ClientRow, KeptRows, VerdictRow
from seqgate.gateway.runtime.partitions.verdicts import Verdicts
from seqgate.gateway.runtime.topics.metadata_log import open_metadata_log
from seqgate.gateway.runtime.topics.producer_ids import SEEN_FILE
from seqgate.gateway.security.principals import ClientIdentity
from seqgate.gateway.workers.metadata_writer import MetadataWriter
from seqgate.gateway.workers.shared_directory import SharedDirectory, make_staged_whole, own_files, share_of
from seqgate.gateway.workers.worker_brokers import registration
from seqgate.log import PRODUCER_CLIENTS, LogDirectory, Storage
from seqgate.log.sharing import WORKERS, is_shared
from seqgate.log.staging import begin_shares, capture, data_path, join_shares, stage_share, stage_stopped
from tests.gateway.workers.test_metadata_writer import topic
from tests.log.support import SMALL, fill


def test_strays_are_those_of_the_moment_when_no_worker_ran(tmp_path: Path) -> None:
    shared = SharedDirectory(Storage(), tmp_path, 1, lambda: 1_000)
    (tmp_path / "gone-0").mkdir()
    shared.share_out([registration(number, number, uuid.uuid4(), {}, None) for number in (1, 2)])
    (tmp_path / "new-0").mkdir()  # another worker has learned of the topic already
    image = shared.metadata.image
    first, second = share_of(tmp_path, 1, image, shared.strays), share_of(tmp_path, 2, image)
    assert [first.owns("gone", 0), first.owns("new", 0), second.owns("gone", 0)] == [True, False, False]
    assert [first.takes_leftovers, second.takes_leftovers] == [True, False]
    assert not first.owns("__cluster_metadata", 0)
    shared.close()


async def test_workers_whose_start_ended_before_they_had_their_files_lead_nothing(tmp_path: Path) -> None:
    """A crash, a signal or a full disk may end a start between its metadata and its files."""
    shared = SharedDirectory(Storage(), tmp_path, 1, lambda: 1_000)
    created = topic(1)
    shared.metadata.change([created, PartitionRecord(0, created.topic_id, (2,), (2,), 2, 0)])
    (tmp_path / f"{WORKERS}.new").touch()  # so that `split` fails
    with pytest.raises(OSError, match="Not a directory"):
        shared.share_out([registration(number, number, uuid.uuid4(), {}, None) for number in (1, 2)])
    shared.close()
    config = load_config(overrides=[f"log.dirs={tmp_path}", "listeners=PLAINTEXT://127.0.0.1:0"])
    gateway = Gateway(config)
    await gateway.start()
    assert not gateway.services.topics.metadata_log.image.brokers.by_id
    await gateway.stop()


@pytest.mark.parametrize("is_live", [True, False])
def test_what_is_staged_of_workers_becomes_the_directory_of_one_process(
    tmp_path: Path, is_live: bool
) -> None:
    root, storage = tmp_path / "data", Storage()
    shared = SharedDirectory(Storage(), root, 1, lambda: 1_000)
    shared.share_out([registration(number, number, uuid.uuid4(), {}, None) for number in (1, 2)])
    created = topic(1)
    partitions = [
        PartitionRecord(index, created.topic_id, (leader,), (leader,), leader, 0)
        for index, leader in enumerate((1, 2))
    ]
    shared.metadata.change([created, *partitions])
    workers = []
    for number in (1, 2):
        share = share_of(root, number, shared.metadata.image)
        workers.append(
            LogDirectory.open(root, Storage(), node_id=1, now_ms=lambda: 1_000, config=SMALL, share=share)
        )
        fill(workers[-1].create(created.name, created.topic_id, number - 1, SMALL), 10 * number)
        (own_files(root, number) / SEEN_FILE).write_bytes(b"%d" % number)
        (own_files(root, number) / PRODUCER_CLIENTS).write_bytes(KeptRows([client(number)]).encode())
        workers[-1].checkpoint()
    if is_live:
        begin_shares(storage, str(root))
        for number, directory in enumerate(workers, 1):
            stage_share(storage, str(root), str(number), capture(directory), (SEEN_FILE,))
        taken_ms, cut = shared.capture_metadata()
        shared.stage_metadata(cut)
        join_shares(storage, str(root), taken_ms)
    else:
        stage_stopped(storage, str(root), 1_000, (SEEN_FILE,))
    end_offset = shared.metadata.end_offset
    original = (root / "__cluster_metadata-0" / f"{0:020d}.log").read_bytes()
    make_staged_whole(storage, root, lambda: 1_000)
    shared.metadata.log.reopen(1_000)
    assert (root / "__cluster_metadata-0" / f"{0:020d}.log").read_bytes() == original
    assert shared.metadata.log.log_end_offset == end_offset
    data = Path(data_path(str(root)))
    assert not (data / PRODUCER_CLIENTS).exists(), "a backup has no addresses"
    assert not is_shared(storage, str(data))
    copy = MetadataWriter(Storage(), str(data), str(data), lambda: 1_000)
    assert not copy.image.brokers.by_id, "one process leads everything"
    assert copy.image.topics_by_name.keys() == {created.name}
    copy.close()
    whole = LogDirectory.open(data, Storage(), node_id=1, now_ms=lambda: 1_000, config=SMALL)
    ends = [(whole.get(created.name, index) or pytest.fail("no log")).log_end_offset for index in (0, 1)]
    assert ends == [10, 20]
    whole.close()
    for directory in workers:
        directory.close(clean=False)
    shared.close()


def test_the_metadata_is_as_the_clean_stop_of_workers_left_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next start checks nothing, and warns of nothing."""
    shared = SharedDirectory(Storage(), tmp_path, 1, lambda: 1_000)
    shared.share_out([registration(number, number, uuid.uuid4(), {}, None) for number in (1, 2)])
    shared.metadata.change([topic(1)])
    shared.close()
    whole = LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: 1_000)
    log = open_metadata_log(whole)
    assert (whole.was_clean, log.recovery_point) == (True, log.log_end_offset)
    assert not [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    whole.close()


def client(producer_id: int) -> ClientRow:
    return ClientRow(producer_id, 0, 0, producer_id, f"app-{producer_id}", "10.0.0.7", "User:ann", None)


def verdict(node_id: int) -> VerdictRow:
    who = ClientIdentity("app", "10.0.0.7", "User:ann", None)
    return VerdictRow(node_id, Verdicts().refusal("t", 0, None, node_id, 45, who, "a gap"))


def rows_of(directory: Path) -> KeptRows:
    return KeptRows.read(Storage(), str(directory / PRODUCER_CLIENTS))


def test_each_worker_knows_the_clients_that_all_knew_and_its_own_verdicts(tmp_path: Path) -> None:
    """The partitions of a producer may have another leader at the next start, and fewer workers may run: then
    the first has the verdicts of those that are gone.
    """
    SharedDirectory(Storage(), tmp_path, 1, lambda: 1_000).close()
    KeptRows([client(7)], [verdict(3)]).write(Storage(), str(tmp_path / PRODUCER_CLIENTS))
    for numbers, told in (((1, 2, 3), {1: [], 2: [], 3: [3]}), ((1, 2), {1: [1, 3], 2: [2]})):
        shared = SharedDirectory(Storage(), tmp_path, 1, lambda: 1_000)
        shared.share_out([registration(number, number, uuid.uuid4(), {}, None) for number in numbers])
        assert not (tmp_path / PRODUCER_CLIENTS).exists()
        for number in numbers:
            own = own_files(tmp_path, number)
            known, verdicts = rows_of(own)
            assert sorted(row.node_id for row in verdicts) == told[number]
            new = [verdict(number)] if len(numbers) == 3 and number < 3 else []
            KeptRows([client(number), *known], [*verdicts, *new]).write(
                Storage(), str(own / PRODUCER_CLIENTS)
            )
        shared.close()
        known, verdicts = rows_of(tmp_path)
        assert known == [client(number) for number in (1, 2, 3, 7)]
        assert sorted(row.node_id for row in verdicts) == [1, 2, 3]
    shared = SharedDirectory(Storage(), tmp_path, 1, lambda: 1_000)
    shared.share_out([registration(1, 1, uuid.uuid4(), {}, None)])
    (own_files(tmp_path, 1) / PRODUCER_CLIENTS).unlink()  # both limits are 0 now
    shared.close()
    assert not (tmp_path / PRODUCER_CLIENTS).exists()


def test_unreadable_clients_of_producers_cost_names_alone(tmp_path: Path) -> None:
    SharedDirectory(Storage(), tmp_path, 1, lambda: 1_000).close()
    (tmp_path / PRODUCER_CLIENTS).mkdir()
    shared = SharedDirectory(Storage(), tmp_path, 1, lambda: 1_000)
    shared.share_out([registration(1, 1, uuid.uuid4(), {}, None)])
    (own_files(tmp_path, 1) / PRODUCER_CLIENTS).write_bytes(KeptRows([client(1)]).encode())
    shared.close()
    assert not is_shared(Storage(), str(tmp_path))
