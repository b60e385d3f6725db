"""Changes a file, or a record in a log, into the form that a later release would write: only its version is
higher.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

from crc32c import crc32c

from seqgate.log import LogDirectory, Storage
from seqgate.log.format.records import NewRecord, build_batch
from seqgate.seq_validator.names import encode_names

NOW_MS = 1_800_000_000_000
Plant = Callable[[Path], None]


def line(name: str, old: str, new: str) -> Plant:
    """Plant a change: replace text in a file."""

    def plant(root: Path) -> None:
        (path,) = root.glob(name)
        content = path.read_text()
        assert old in content
        path.write_text(content.replace(old, new, 1))

    return plant


def first_line(name: str) -> Plant:
    """Write version 1 into a checkpoint; all current checkpoints have version 0."""

    def plant(root: Path) -> None:
        (path,) = root.glob(name)
        version, rest = path.read_text().split("\n", 1)
        assert version == "0"
        path.write_text(f"1\n{rest}")

    return plant


def sealed(name: str, position: int, version: int) -> Plant:
    """Replace an int16 in the newest of some files that end with the CRC-32C of their contents."""

    def plant(root: Path) -> None:
        path = max(root.glob(name))
        content = bytearray(path.read_bytes()[:-4])
        assert struct.unpack_from(">h", content, position) == (version - 1,)
        struct.pack_into(">h", content, position, version)
        path.write_bytes(content + struct.pack(">I", crc32c(content)))

    return plant


def written(name: str, text: str) -> Plant:
    """Write a file that did not exist."""

    def plant(root: Path) -> None:
        path = root / name
        assert not path.exists()
        path.write_text(text)

    return plant


def names_snapshot(partition: str, version: int) -> Plant:
    """Write a snapshot of producer names with another version, where none existed."""

    def plant(root: Path) -> None:
        (root / partition / f"{0:020}.names").write_bytes(encode_names([], 0))
        sealed(f"{partition}/*.names", 4, version)(root)

    return plant


def clean_shutdown(root: Path) -> None:
    """Write the file that marks a clean stop, with version 3."""
    path = root / ".kafka_cleanshutdown"
    content = json.loads(path.read_text())
    assert content["version"] == 2
    path.write_text(json.dumps({**content, "version": 3}))


def stored_logs(root: Path) -> None:
    """Leave the state after a crash: no mark of a clean stop, but the other files that the last clean stop
    left.
    """
    clean_shutdown(root)
    (root / ".kafka_cleanshutdown").rename(root / "stored-logs")


def magic(name: str) -> Plant:
    """Give the last batch magic 3, in a log that the start checks because the clean stop does not cover it."""

    def plant(root: Path) -> None:
        path = max(root.glob(name))
        content = path.read_bytes()
        position = 0
        while (end := position + 12 + struct.unpack_from(">i", content, position + 8)[0]) < len(content):
            position = end
        batch = bytearray(content[position:])
        struct.pack_into(">q", batch, 0, struct.unpack_from(">q", batch)[0] + batch_offsets(batch))
        assert batch[16] == 2
        batch[16] = 3
        path.write_bytes(content + batch)

    return plant


def batch_offsets(batch: bytearray) -> int:
    """Return how many offsets a batch takes."""
    return int(struct.unpack_from(">i", batch, 23)[0]) + 1


def record(topic: str, key: bytes | None, value: bytes) -> Plant:
    """Append a record to the first partition of an internal topic, and stop cleanly."""

    def plant(root: Path) -> None:
        directory = LogDirectory.open(root, Storage(), node_id=1, now_ms=lambda: NOW_MS)
        log = directory.get(topic, 0)
        assert log is not None
        log.append(build_batch([NewRecord(value, key=key, timestamp=NOW_MS)]), now_ms=NOW_MS, is_client=False)
        directory.close()

    return plant


def contents(root: Path) -> dict[str, bytes]:
    """Return every file with its bytes, without sockets."""
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
    }


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    """Return the names of files that are new, gone or different."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
