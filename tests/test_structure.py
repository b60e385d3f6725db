"""The shape of the five packages: no circle of files, no file that is too long, no folder of leftovers."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("gateway", "log", "pid_allocator", "seq_validator", "spark_kafka_compat")
LONGEST = 400
STILL_LONGER = {
    "connection.py",
    "group_coordinator.py",
    "load.py",
    "log_directory.py",
    "segment.py",
    "share_coordinator.py",
    "share_partition.py",
    "shard.py",
    "storage.py",
    "table.py",
    "transaction_coordinator.py",
}
"""Files that were longer when this rule came, and may stay below `LONGEST_OF_OLD`. Take a name out when its file is short."""
LONGEST_OF_OLD = 500
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc"}
Imports = Mapping[str, Iterable[str]]


def modules(root: Path) -> dict[str, Path]:
    """Return the files of the five packages by their dotted names."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(name: str, path: Path, known: Iterable[str]) -> Iterator[str]:
    """Yield the modules that a file names in an import, wherever it stands: for types only, or inside of a function.

    `from a import b` names the module a.b where there is one; otherwise it names a. The package around a module, whose
    `__init__` Python runs first, is not named.
    """
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            around = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*around, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{origin}.{alias.name}"
                target = whole if whole in known else origin
                if target in known and target != name:
                    yield target


def circles(imports: Imports) -> list[list[str]]:
    """Return the groups of files that all reach each other, by Tarjan's algorithm without recursion."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []
    for start in imports:
        if start in index:
            continue
        index[start] = lowest[start] = len(index)
        stack.append(start)
        path = [(start, iter(imports[start]))]
        while path:
            name, left = path[-1]
            target = next(left, None)
            if target is not None:
                if target not in index:
                    index[target] = lowest[target] = len(index)
                    stack.append(target)
                    path.append((target, iter(imports[target])))
                elif target in stack:
                    lowest[name] = min(lowest[name], index[target])
                continue
            path.pop()
            if path:
                lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[name])
            if lowest[name] == index[name]:
                group = stack[stack.index(name) :]
                del stack[stack.index(name) :]
                if len(group) > 1:
                    found.append(sorted(group))
    return found


def imports_under(root: Path) -> dict[str, list[str]]:
    files = modules(root)
    return {name: sorted(set(imports_of(name, path, files))) for name, path in files.items()}


def test_no_files_import_each_other_in_a_circle() -> None:
    found = [group for group in circles(imports_under(ROOT)) if not group[0].startswith("log.")]
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
    too_long = {}
    for name, path in modules(ROOT).items():
        lines = len(path.read_text().splitlines())
        if lines > (LONGEST_OF_OLD if path.name in STILL_LONGER else LONGEST):
            too_long[name] = lines
    assert too_long == {}


def test_every_file_is_named_for_what_is_in_it() -> None:
    assert [name for name in modules(ROOT) if VAGUE & set(name.split("."))] == []
