from __future__ import annotations

import ast
import inspect
import os
from pathlib import Path

import pytest

from seqgate import log
from seqgate.log.files.disk import Disk, FileEntry, SystemDisk

SOURCES = sorted(Path(log.__file__).parent.rglob("*.py"))
MAY_CALL_THE_SYSTEM = {"disk.py", "page_cache.py"}
HARMLESS = {"path.dirname", "path.basename", "getppid", "nice", "strerror"}


def calls_of(source: Path) -> set[str]:
    """Return the calls of the module that could reach a file: `open`, functions of the module os, methods of
    Path.
    """
    tree = ast.parse(source.read_text(encoding="utf-8"))
    called = (ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {
        name
        for name in called
        if name == "open"
        or (name.startswith("os.") and name[3:] not in HARMLESS)
        or name.split(".")[-1] in {"read_bytes", "read_text", "write_bytes", "write_text", "iterdir", "glob"}
    }


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_no_other_module_reaches_a_file(source: Path) -> None:
    called = calls_of(source)
    assert bool(called) == (source.name in MAY_CALL_THE_SYSTEM), called


def test_the_system_is_a_disk() -> None:
    for name, member in inspect.getmembers(Disk):
        if not name.startswith("_") and callable(member):
            assert callable(getattr(SystemDisk(), name)), name


class TestEntries:
    def test_tell_files_from_directories(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"123")
        (tmp_path / "b").mkdir()
        (tmp_path / "c").symlink_to(tmp_path / "a")
        disk = SystemDisk()
        disk.set_modified_ms(str(tmp_path / "a"), 5_000)
        found = {entry.name: entry for entry in disk.entries(str(tmp_path))}
        inode = (tmp_path / "a").stat().st_ino
        assert found["a"] == FileEntry("a", 3, 5_000, False, inode, 5_000_000_000)
        assert found["b"].is_directory
        assert found["b"].size_bytes == 0
        assert not found["c"].is_directory
        assert disk.list_files(str(tmp_path)) == {"a": 3, "c": 3}
        assert len(disk.some_names(str(tmp_path), 2)) == 2

    def test_sizes_and_times(self, tmp_path: Path) -> None:
        path = str(tmp_path / "a")
        disk = SystemDisk()
        descriptor = disk.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        assert disk.pwritev(descriptor, (b"12", b"345"), 1) == 5
        assert disk.open_size_bytes(descriptor) == disk.size_bytes(path) == 6
        disk.set_modified_ms(path, 7_001)
        assert disk.modified_ms(path) == 7_001
        disk.close(descriptor)
