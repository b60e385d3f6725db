"""Finds the imports among the files of the five packages, from their source."""

from __future__ import annotations

import ast
import enum
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("gateway", "log", "pid_allocator", "seq_validator", "spark_kafka_compat")
"""The folders at the top of the repository; each is a package of `seqgate`."""


def modules(root: Path) -> dict[str, Path]:
    """Return the files of the five packages by their dotted names."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = ("seqgate", *path.relative_to(root).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


class When(enum.Enum):
    """The time at which a file imports a module."""

    AT_ONCE = "at its top"
    LATE = "inside a function"
    HINT = "for type checking only"


class Import(NamedTuple):
    """A module that a file imports, and when."""

    target: str
    when: When


def imports_of(name: str, path: Path, known: Container[str]) -> Iterator[Import]:
    """Yield each import of a known module in a file.

    `from a import b` names the module a.b if it exists, and otherwise a. The packages that contain a module
    are not named, although Python runs their `__init__` first.
    """
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node, when in _import_statements(ast.parse(path.read_text()), When.AT_ONCE):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, when) for alias in node.names if alias.name in known)
            continue
        around = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        origin = ".".join([*around, *([node.module] if node.module else [])])
        for alias in node.names:
            whole = f"{origin}.{alias.name}"
            target = whole if whole in known else origin
            if target in known and target != name:
                yield Import(target, when)


def _import_statements(tree: ast.AST, when: When) -> Iterator[tuple[ast.Import | ast.ImportFrom, When]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, when
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from _import_statements(node, When.HINT)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _import_statements(node, When.LATE)
        else:
            yield from _import_statements(node, when)


def all_imports(root: Path) -> dict[str, list[Import]]:
    """Return every import of each file."""
    files = modules(root)
    return {name: list(imports_of(name, path, files)) for name, path in files.items()}


def imports_under(root: Path, *when: When) -> dict[str, list[str]]:
    """Return the modules that each file imports at these times (none: at any time), sorted by name."""
    chosen = set(when or When)
    return {
        name: sorted({found.target for found in imports if found.when in chosen})
        for name, imports in all_imports(root).items()
    }


def circles(imports: Mapping[str, Iterable[str]]) -> list[list[str]]:
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
