"""The shape of the five packages: no circle of files, no long file, no folder with a vague name, no stray fsync."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.imports import ROOT, circles, imports_under, modules

LONGEST = 400
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc"}


def test_no_files_import_each_other_in_a_circle() -> None:
    found = circles(imports_under(ROOT))
    assert not found, "\n".join(f"a circle of {len(group)} files: {', '.join(group)}" for group in found)


@pytest.mark.parametrize(
    "line",
    [
        "from log import b",
        "from log.b import B",
        "import log.b",
        "from . import b",
        "from .b import B",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from log.b import B",
        "def late():\n    from log.b import B",
    ],
)
def test_a_circle_is_found(tmp_path: Path, line: str) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "__init__.py").write_text("from log.a import A\n")
    (folder / "a.py").write_text(f"{line}\n")
    (folder / "b.py").write_text("from log import c\n")
    (folder / "c.py").write_text("from log.a import A\n")
    (folder / "d.py").write_text("from log.a import A\n")
    assert circles(imports_under(tmp_path)) == [["log.a", "log.b", "log.c"]]


def test_two_circles_are_told_apart() -> None:
    imports = {"a": ["b", "c"], "b": ["a"], "c": ["d"], "d": ["e"], "e": ["c"], "f": ["a", "c"]}
    assert sorted(circles(imports)) == [["a", "b"], ["c", "d", "e"]]


def test_no_file_is_longer_than_four_hundred_lines() -> None:
    lines = {name: len(path.read_text().splitlines()) for name, path in modules(ROOT).items()}
    assert {name: count for name, count in lines.items() if count > LONGEST} == {}


def test_every_file_is_named_for_what_is_in_it() -> None:
    assert [name for name in modules(ROOT) if VAGUE & set(name.split("."))] == []


FLUSHES = re.compile(r"f(data)?sync|syncfs")
"""The names of calls that make bytes durable, such as fsync, fdatasync, syncfs, and fsync_path of the storage."""
MAY_FLUSH = (
    "log.durability.",
    "log.files.disk",
    "log.files.sparse_disk",
    "log.files.storage",
    "gateway.cluster.objects.address",
)
"""The modules that may flush: the `Durability`, the modules that make the calls for it, and the object store in a directory."""


def _flushes(source: str) -> list[str]:
    """Return the names in `source`, a module's code, that FLUSHES finds."""
    names = [
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute | ast.Name)
    ]
    return [name for name in names if FLUSHES.search(name)]


def test_nothing_flushes_but_the_durability() -> None:
    """Only `log.durability` decides whether data is flushed, so no other module may call an fsync."""
    found = {
        name: flushes
        for name, path in modules(ROOT).items()
        if not name.startswith(MAY_FLUSH) and (flushes := _flushes(path.read_text()))
    }
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "os.fsync(1)",
        "self._disk.fdatasync(descriptor)",
        "storage.fsync_directory(path)",
        "from os import fsync\nfsync(1)",
        "flush = libc.syncfs",
    ],
)
def test_a_flush_is_found(line: str) -> None:
    assert _flushes(line)


def test_a_sync_that_is_no_flush_is_not_found() -> None:
    assert not _flushes("durability.sync(paths=[path])\ngroups.sync(member)  # no fsync")
