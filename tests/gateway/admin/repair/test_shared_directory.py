"""`seqgate repair` on a directory in which several workers were killed, also with damage in the metadata."""

from __future__ import annotations

import uuid
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from seqgate.gateway.admin.repair import Repair
from seqgate.gateway.cli import app
from seqgate.gateway.metadata.records import PartitionRecord, TopicRecord
from seqgate.gateway.workers.metadata_writer import METADATA_DIRECTORY
from seqgate.gateway.workers.shared_directory import SharedDirectory, recover_whole, share_of
from seqgate.gateway.workers.worker_brokers import registration
from seqgate.log import CorruptRecord, LogConfig, LogDirectory, Storage
from seqgate.log.format.record_batch import whole_batches
from seqgate.log.sharing import is_shared, release
from tests.log.support import NOW_MS, batch, flush

TOPIC_ID = uuid.UUID(int=7)


def killed(root: Path) -> None:
    """Leave the directory of two workers that were killed; `t-0` belongs to worker 2 and has three records."""
    storage = Storage()
    shared = SharedDirectory(storage, root, 1, lambda: NOW_MS)
    shared.share_out([registration(number, number, uuid.uuid4(), {}, None) for number in (1, 2)])
    for number in range(3):
        shared.metadata.change([TopicRecord(f"u{number}", uuid.UUID(int=100 + number))])
    shared.metadata.change([TopicRecord("t", TOPIC_ID), PartitionRecord(0, TOPIC_ID, (2,), (2,), 2, 0)])
    shared.metadata.checkpoint()
    share = share_of(root, 2, shared.metadata.image)
    directory = LogDirectory.open(root, Storage(), node_id=1, now_ms=lambda: NOW_MS, share=share)
    log = directory.create("t", TOPIC_ID, 0, LogConfig())
    for _ in range(3):
        log.append(batch(), now_ms=NOW_MS)
    flush(log)
    directory.checkpoint()
    directory.close(clean=False)
    release(storage, str(root))


def damage(directory: Path, number: int) -> None:
    path = directory / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    position, header = list(whole_batches(content))[number]
    content[position + header.size_bytes - 1] ^= 4
    path.write_bytes(content)


def repair(root: Path, *options: str) -> tuple[Repair, int]:
    result = CliRunner().invoke(app, ["repair", "--json", "--data-dir", str(root), *options])
    assert result.stdout, result.stderr
    return msgspec.json.decode(result.stdout, type=Repair), result.exit_code


@pytest.mark.parametrize("is_metadata_damaged", [False, True], ids=["records", "metadata"])
def test_damage_is_found_and_given_up(tmp_path: Path, is_metadata_damaged: bool) -> None:
    killed(tmp_path)
    expected = [("t", 1, 2)]
    damage(tmp_path / "t-0", 1)
    if is_metadata_damaged:
        damage(tmp_path / METADATA_DIRECTORY, 1)
        with pytest.raises(CorruptRecord):
            recover_whole(Storage(), tmp_path, 1, lambda: NOW_MS)
        assert is_shared(Storage(), str(tmp_path))
    found, code = repair(tmp_path)
    assert code == 1
    assert is_shared(Storage(), str(tmp_path))
    rows = [(row.topic, row.first_offset, row.end_offset) for row in found.damaged]
    assert [row for row in rows if row[0] == "t"] == expected
    assert (len(rows) == 2) is is_metadata_damaged
    given_up, code = repair(tmp_path, "--apply")
    assert (given_up.given_up, code) == (True, 0)
    assert [(row.topic, row.first_offset, row.end_offset) for row in given_up.damaged] == rows
    assert not is_shared(Storage(), str(tmp_path))
    assert repair(tmp_path) == (Repair([], 0, given_up=False), 0)
    directory = LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS)
    log = directory.get("t", 0)
    assert log is not None
    assert log.log_end_offset == 3
    directory.close()
    again = SharedDirectory(Storage(), tmp_path, 1, lambda: NOW_MS)
    assert "t" in again.metadata.image.topics_by_name
    again.close()
