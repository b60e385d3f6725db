"""The shape of the five packages: one subject, one file; no circle, no crumb, no file that is too long, no
vague name, no stray fsync, no part that is finished by somebody else.

`python -m tests.test_structure` prints how many lines the files have, and the crumbs that are imported late.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from seqgate.gateway.cli import COMMANDS
from tests.support.imports import ROOT, Import, When, all_imports, circles, imports_under, modules

LONGEST = 1_000
CRUMB = 100
"""A module with fewer lines that one other module of its folder imports, and nobody else, is a section of
that one.
"""
ENTRY_POINTS = {"seqgate.gateway.entry", *(f"seqgate.gateway.{place}" for place, _ in COMMANDS.values())}
"""The modules that an installed command imports (pyproject.toml), and those that the command line imports by
their names.
"""
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc"}


def lines_of(root: Path) -> dict[str, int]:
    return {name: len(path.read_text().splitlines()) for name, path in modules(root).items()}


def crumbs(imports: Mapping[str, list[Import]], lines: Mapping[str, int], when: When) -> list[str]:
    """Return the crumbs whose one importer imports them at this time."""
    faces = {name for name in lines if any(other.startswith(f"{name}.") for other in lines)} | ENTRY_POINTS
    importers: dict[str, dict[str, set[When]]] = defaultdict(lambda: defaultdict(set))
    for name, found in imports.items():
        for target, time in found:
            importers[target][name].add(time)
    return [
        f"{name} ({count} lines) is a section of {importer}"
        for name, count in sorted(lines.items())
        if count < CRUMB and len(importers[name]) == 1 and name not in faces
        for importer, times in importers[name].items()
        if importer.rpartition(".")[0] == name.rpartition(".")[0]
        and (when is When.LATE) == (times == {When.LATE})
    ]


def test_no_module_is_a_crumb() -> None:
    """A module that is only imported late may be small: what a start does not need stays apart."""
    assert crumbs(all_imports(ROOT), lines_of(ROOT), When.AT_ONCE) == []


def test_a_crumb_is_found() -> None:
    imports = {
        "log.a": [Import("log.b", When.AT_ONCE), Import("log.c", When.LATE), Import("log.d", When.AT_ONCE)],
        "log.b": [Import("log.files.e", When.AT_ONCE)],
        "log.f": [Import("log.d", When.HINT)],
    }
    lines = {"log.a": 99, "log.b": 99, "log.c": 99, "log.d": 99, "log.files.e": 99, "log.f": 99}
    assert crumbs(imports, lines, When.AT_ONCE) == ["log.b (99 lines) is a section of log.a"]
    assert crumbs(imports, lines, When.LATE) == ["log.c (99 lines) is a section of log.a"]
    assert crumbs(imports, {**lines, "log.b": 100}, When.AT_ONCE) == []


def test_no_files_import_each_other_in_a_circle() -> None:
    """Hints for type checking are free inside a folder; late imports are no part of a start."""
    found = circles(imports_under(ROOT, When.AT_ONCE))
    assert not found, "\n".join(f"a circle of {len(group)} files: {', '.join(group)}" for group in found)


@pytest.mark.parametrize(
    "line",
    [
        "from seqgate.log import b",
        "from seqgate.log.b import B",
        "import seqgate.log.b",
        "from . import b",
        "from .b import B",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from seqgate.log.b import B",
        "def late():\n    from seqgate.log.b import B",
    ],
)
def test_a_circle_is_found(tmp_path: Path, line: str) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "__init__.py").write_text("from seqgate.log.a import A\n")
    (folder / "a.py").write_text(f"{line}\n")
    (folder / "b.py").write_text("from seqgate.log import c\n")
    (folder / "c.py").write_text("from seqgate.log.a import A\n")
    (folder / "d.py").write_text("from seqgate.log.a import A\n")
    assert circles(imports_under(tmp_path)) == [["seqgate.log.a", "seqgate.log.b", "seqgate.log.c"]]


def test_two_circles_are_told_apart() -> None:
    imports = {"a": ["b", "c"], "b": ["a"], "c": ["d"], "d": ["e"], "e": ["c"], "f": ["a", "c"]}
    assert sorted(circles(imports)) == [["a", "b"], ["c", "d", "e"]]


def test_no_file_is_longer_than_a_thousand_lines() -> None:
    assert {name: count for name, count in lines_of(ROOT).items() if count > LONGEST} == {}


def test_every_file_is_named_for_what_is_in_it() -> None:
    assert [name for name in modules(ROOT) if VAGUE & set(name.split("."))] == []


FLUSHES = re.compile(r"f(data)?sync|syncfs")
"""The names of calls that make bytes durable, such as fsync, fdatasync, syncfs, and fsync_path of the
storage.
"""
MAY_FLUSH = (
    "seqgate.log.durability.",
    "seqgate.log.files.disk",
    "seqgate.log.files.sparse_disk",
    "seqgate.log.files.storage",
    "seqgate.gateway.cluster.objects.directory_objects",
)
"""The modules that may flush: the `Durability`, the modules that make the calls for it, and the object store
in a directory.
"""


def _flushes(source: str) -> list[str]:
    """Return the names in `source`, a module's code, that FLUSHES finds."""
    names = [
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute | ast.Name)
    ]
    return [name for name in names if FLUSHES.search(name)]


def test_nothing_flushes_but_the_durability() -> None:
    """Only `seqgate.log.durability` decides whether data is flushed, so no other module may call an fsync."""
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


COMPOSITION = re.compile(
    r"(seqgate\.)?gateway\.(gateway|running\w*|serving|runtime\.composition|backends\..+)"
)
"""The modules that put parts together."""
SET_LATER = {
    "daemon": "threading.Timer has no parameter for it",
    "first_flush_pending": "the state of the files on the disk, which a log reads when it is opened",
    "source": "the storage may have holes before the bucket can be opened, from which it reads the blocks",
    "sslobject_class": "ssl.SSLContext has no parameter for it",
}
"""Attributes that are set on a part after it was made, each with the reason."""


def set_from_outside(source: str, *, only_in_init: bool) -> list[str]:
    """Return the attributes that a module, or only its constructors, sets on parts of other modules."""
    tree = ast.parse(source)
    own = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id in {"self", "cls"}
    }
    own |= {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    bodies: list[ast.AST] = [tree]
    if only_in_init:
        bodies = [
            node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__"
        ]
    return [
        ast.unparse(node)
        for body in bodies
        for node in ast.walk(body)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and node.attr not in own | SET_LATER.keys()
    ]


def test_parts_are_whole_when_they_are_made() -> None:
    """What a part needs is passed to it. Nobody sets an attribute of a part after its construction."""
    found = {
        name: attributes
        for name, path in modules(ROOT).items()
        if (attributes := set_from_outside(path.read_text(), only_in_init=not COMPOSITION.fullmatch(name)))
    }
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "backlog.held.room = memory",
        "self.registry.lease = lease",
        "clock.listeners += [wake]",
        "server.outbox, server.unread = outbox, unread",
    ],
)
def test_an_attribute_that_is_set_from_outside_is_found(line: str) -> None:
    source = f"class Part:\n    def __init__(self, part):\n        self.part = part\n        {line}\n"
    assert set_from_outside(source, only_in_init=True)
    assert not set_from_outside(source.replace("__init__", "changed"), only_in_init=True)
    assert set_from_outside(source.replace("__init__", "changed"), only_in_init=False)


def test_an_attribute_of_the_module_itself_is_not_found() -> None:
    source = (
        "class Task:\n    done: bool\nclass Tasks:\n    def __init__(self, task):\n        task.done = True\n"
    )
    assert not set_from_outside(source, only_in_init=True)


def histogram() -> str:
    """Return how many files have how many lines, and the small files that are only imported late."""
    lines = {name: count for name, count in lines_of(ROOT).items() if count > 1}
    sizes = Counter(min(count // 100, 10) * 100 for count in lines.values())
    rows = [
        f"{size:>5} to {size + 99:<5} {sizes[size]:>4} {'#' * (sizes[size] // 4)}" for size in sorted(sizes)
    ]
    total = sum(lines.values())
    rows.append(f"{len(lines)} files, {total} lines, {total // len(lines)} lines on average")
    return "\n".join([*rows, "", "imported late only:", *crumbs(all_imports(ROOT), lines, When.LATE)])


if __name__ == "__main__":
    print(histogram())
