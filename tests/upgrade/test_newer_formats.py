"""Data of a later release is refused with a sentence that names the data, its version and the supported one.
Nothing changes.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.stored import existing_metadata_directory
from seqgate.log import IncompatibleFormat, LogDirectory, Storage
from seqgate.log.files.sparse_disk import DIRECTORY_VERSION, WORKERS_VERSION
from seqgate.log.segments.transaction_index import ENTRY
from tests.support.batches import Batch
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.upgrade.asking import Asking, place, read_all
from tests.upgrade.make_fixture import FIXTURES
from tests.upgrade.opening import OPENING
from tests.upgrade.planting import (
    NOW_MS,
    Plant,
    changed,
    clean_shutdown,
    contents,
    first_line,
    line,
    magic,
    names_snapshot,
    record,
    sealed,
    stored_logs,
    written,
)

START_S = 120.0
STOPS = (".kafka_cleanshutdown", "stored-logs")
STORAGE_ERROR = 56
OLDER_DIRECTORY = "0.1.0-5-faults-stopped"
"""A fixture whose directory has an earlier version than this release's."""
GROUP = struct.pack(">hh", 2, 5) + b"group"
OFFSET = struct.pack(">hh", 1, 5) + b"group" + struct.pack(">h", 5) + b"topic" + struct.pack(">i", 0)
CONSUMER_GROUP = struct.pack(">hh", 3, 5) + b"group"
SHARE_GROUP = struct.pack(">hh", 11, 5) + b"group"
TRANSACTION = struct.pack(">hh", 0, 2) + b"id"
SHARE_STATE = struct.pack(">hh", 0, 5) + b"group" + bytes(16) + struct.pack(">i", 0)
METADATA = b'{"type":"TOPIC_RECORD","version":1,"data":{}}'
NEW_METADATA = b'{"type":"FEATURE_RECORD","version":0,"data":{}}'


def value(version: int) -> bytes:
    """Return a value of which only the version can be read."""
    return struct.pack(">h", version) + b"\x7f" * 40


STOPS_THE_START: dict[str, tuple[Plant, str]] = {
    "directory": (
        line("meta.properties", f"version={DIRECTORY_VERSION}", f"version={WORKERS_VERSION + 1}"),
        (
            rf"meta\.properties has version {WORKERS_VERSION + 1}; this program reads versions 1 to "
            rf"{WORKERS_VERSION}\."
        ),
    ),
    "clean stop": (
        clean_shutdown,
        r"\.kafka_cleanshutdown has version 3; this program reads versions 1 to 2\.",
    ),
    "stored logs": (stored_logs, r"stored-logs has version 3; this program reads versions 1 to 2\."),
    "recovery points": (
        first_line("recovery-point-offset-checkpoint"),
        r"recovery-point-offset-checkpoint has version 1; this program reads version 0\.",
    ),
    "cleaner offsets": (
        first_line("cleaner-offset-checkpoint"),
        r"cleaner-offset-checkpoint has version 1; this program reads version 0\.",
    ),
    "epochs of the metadata": (
        first_line("__cluster_metadata-0/leader-epoch-checkpoint"),
        r"leader-epoch-checkpoint has version 1; this program reads version 0\.",
    ),
    "metadata": (
        record("__cluster_metadata", None, METADATA),
        "TOPIC_RECORD has version 1; this program reads version 0 of TOPIC_RECORD",
    ),
    **{
        f"metadata of {name}": (
            record("__cluster_metadata", None, METADATA.replace(b"TOPIC_RECORD", name.encode())),
            f"{name} has version 1; this program reads version 0 of TOPIC_RECORD",
        )
        for name in (
            "ACCESS_CONTROL_ENTRY_RECORD",
            "CLIENT_QUOTA_RECORD",
            "USER_SCRAM_CREDENTIAL_RECORD",
            "DELEGATION_TOKEN_RECORD",
        )
    },
    "kind of metadata": (
        record("__cluster_metadata", None, NEW_METADATA),
        "FEATURE_RECORD has version 0; this program reads version 0 of TOPIC_RECORD",
    ),
    "group": (
        record("__consumer_offsets", GROUP, value(5)),
        (
            r"__consumer_offsets-0 has, at offset \d+, a value of version 5; this program reads versions 0 to "
            r"4\."
        ),
    ),
    "offset": (
        record("__consumer_offsets", OFFSET, value(5)),
        (
            r"__consumer_offsets-0 has, at offset \d+, a value of version 5; this program reads versions 0 to "
            r"4\."
        ),
    ),
    "consumer group": (
        record("__consumer_offsets", CONSUMER_GROUP, value(1)),
        (
            r"__consumer_offsets-0 has, at offset \d+, a value of version 1; this program reads versions 0 to "
            r"0\."
        ),
    ),
    "share group": (
        record("__consumer_offsets", SHARE_GROUP, value(1)),
        (
            r"__consumer_offsets-0 has, at offset \d+, a value of version 1; this program reads versions 0 to "
            r"0\."
        ),
    ),
    "transaction": (
        record("__transaction_state", TRANSACTION, value(2)),
        (
            r"__transaction_state-0 has, at offset \d+, a value of version 2; this program reads versions 0 to "
            r"1\."
        ),
    ),
    "share state": (
        record("__share_group_state", SHARE_STATE, value(1)),
        (
            r"__share_group_state-0 has, at offset \d+, a value of version 1; this program reads versions 0 to "
            r"0\."
        ),
    ),
}
CLOSES_THE_PARTITION: dict[str, tuple[str, Plant, str]] = {
    "topic id": (
        "codecs",
        line("codecs-0/partition.metadata", "version: 0", "version: 1"),
        r"partition\.metadata has version 1; this program reads version 0\.",
    ),
    "leader epochs": (
        "codecs",
        first_line("codecs-0/leader-epoch-checkpoint"),
        r"leader-epoch-checkpoint has version 1; this program reads version 0\.",
    ),
    "log start": (
        "rolled",
        first_line("rolled-0/log-start-offset-checkpoint"),
        r"log-start-offset-checkpoint has version 1; this program reads version 0\.",
    ),
    "producers": (
        "idempotent",
        sealed("idempotent-0/*.snapshot", 4, 3),
        r"\.snapshot has version 3; this program reads versions 1 to 2\.",
    ),
    "producer names": (
        "codecs",
        names_snapshot("codecs-0", 2),
        r"\.names has version 2; this program reads versions up to 1\.",
    ),
    "start of producer names": (
        "codecs",
        written("codecs-0/deduplication-start-checkpoint", "1\n1\ncodecs 0 0\n"),
        r"deduplication-start-checkpoint has version 1; this program reads version 0\.",
    ),
    "delayed records": (
        "delayed",
        sealed("delayed-0/delayed-records", 4, 2),
        r"delayed-records has version 2; this program reads version 1\.",
    ),
    "batches": (
        "codecs",
        magic("codecs-0/*.log"),
        r"\.log has a batch of magic 3 at position \d+; this program reads magic 2\.",
    ),
}


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that this release has stopped, with everything in it."""
    root = tmp_path_factory.mktemp("current") / "data"
    with tarfile.open(max(FIXTURES.glob("*-stopped.tar.gz"))) as archive:
        archive.extractall(root, filter="data")
    with GatewayProcess(root, settings=OPENING) as gateway:
        opened = Asking(gateway.bootstrap)
        for topic in ("codecs", "idempotent", "rolled", "delayed"):
            opened.offset(topic, 0, -2)
        opened.close()
    assert f"version={DIRECTORY_VERSION}\n" in (root / "meta.properties").read_text()
    return root


@pytest.mark.parametrize("name", STOPS_THE_START)
def test_a_start_is_refused_in_one_sentence(name: str, current: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(current, tmp_path / "data"))
    plant, sentence = STOPS_THE_START[name]
    plant(root)
    before = contents(root)
    command = [sys.executable, "-m", "seqgate", "serve", "--listen", "127.0.0.1:0", "--data-dir", str(root)]
    ended = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=START_S, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "Traceback" not in ended.stderr
    assert re.search(sentence, ended.stderr.splitlines()[-1]), ended.stderr
    after = contents(root)
    if after.get("stored-logs") == before.get(".kafka_cleanshutdown"):
        # the start had set aside the files of the clean stop; they are restored unchanged
        after |= {path: before[path] for path in ("stored-logs",) if path in before}
        after = {path: content for path, content in after.items() if path in before}
    assert changed(before, after) == set()


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("name", CLOSES_THE_PARTITION)
def test_a_partition_stays_closed_and_as_it_is(
    name: str, current: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_clean: bool
) -> None:
    root = Path(shutil.copytree(current, tmp_path / "data"))
    topic, plant, sentence = CLOSES_THE_PARTITION[name]
    if not is_clean:
        for path in STOPS:
            (root / path).unlink(missing_ok=True)
    plant(root)
    before = contents(root / f"{topic}-0")
    directory = LogDirectory.open(root, Storage(), node_id=1, now_ms=lambda: NOW_MS)
    for _ in range(2):
        with pytest.raises(IncompatibleFormat, match=sentence):
            directory.get(topic, 0)
    assert is_clean or [told for told in caplog.messages if re.search(sentence, told)]
    assert directory.get("clients", 0) is not None
    directory.close()
    assert changed(before, contents(root / f"{topic}-0")) == set()


def test_others_are_served_beside_it(current: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(current, tmp_path / "data"))
    _, plant, sentence = CLOSES_THE_PARTITION["producers"]
    plant(root)
    before = contents(root / "idempotent-0")
    with GatewayProcess(root, settings=OPENING) as gateway:
        asking = Asking(gateway.bootstrap)
        refused = asking.produce("idempotent", Batch())
        assert (refused["error_code"], refused["base_offset"]) == (STORAGE_ERROR, -1)
        asking.append("clients", Batch())
        assert read_all(gateway.bootstrap, [place("clients")])[place("clients")]
        asking.close()
    assert re.search(sentence, gateway.stderr_text())
    assert "Traceback" not in gateway.stderr_text()
    assert changed(before, contents(root / "idempotent-0")) == set()


def test_an_index_is_made_anew_from_the_log(current: Path, tmp_path: Path) -> None:
    """An index has no version and contains nothing that the log does not, so any unknown one is simply
    rebuilt.
    """
    root = Path(shutil.copytree(current, tmp_path / "data"))
    for name in STOPS:
        (root / name).unlink(missing_ok=True)
    (index,) = (root / "transactional-0").glob("*.txnindex")
    was = index.read_bytes()
    index.write_bytes(struct.pack(">h", 1) + was[2:])
    directory = LogDirectory.open(root, Storage(), node_id=1, now_ms=lambda: NOW_MS)
    assert directory.get("transactional", 0) is not None
    directory.close()
    assert len(was) > ENTRY.size
    assert index.read_bytes() == was


def test_commands_on_a_stopped_gateway_refuse_the_directory(current: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(current, tmp_path / "data"))
    plant, sentence = STOPS_THE_START["directory"]
    plant(root)
    before = contents(root)
    with pytest.raises(ControlError, match=sentence):
        existing_metadata_directory(root)
    assert contents(root) == before


def test_the_directory_says_so_before_anything_newer_is_written(tmp_path: Path) -> None:
    """An older release's directory gets this release's version first; a power cut in between leaves the old
    version.
    """
    with tarfile.open(FIXTURES / f"{OLDER_DIRECTORY}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    told: list[str] = []

    class Telling(Storage):
        def rename(self, source: str, target: str) -> None:
            told.append(Path(target).name)
            super().rename(source, target)

    was = dict(line.split("=") for line in (tmp_path / "meta.properties").read_text().splitlines())
    assert int(was["version"]) < DIRECTORY_VERSION
    LogDirectory.open(tmp_path, Telling(), node_id=1, now_ms=lambda: NOW_MS).close()
    assert told[0] == "meta.properties"
    now = dict(line.split("=") for line in (tmp_path / "meta.properties").read_text().splitlines())
    assert now == {**was, "version": str(DIRECTORY_VERSION)}
