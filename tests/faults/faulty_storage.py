# ruff: noqa: PTH102, PTH119, PTH120, RUF071 - paths are plain strings here, as in the storage
"""Disks that fail: an operation with an error, or the whole machine with everything that was not made durable.

`FaultyStorage` numbers the operations that change something and lets the chosen one fail. It also keeps a model of what
the disk really has: file contents by `sync`, names by `sync_directory`. `power_cut` writes one of the states in which a
power cut could leave the directory, chosen by a seed. After a failed sync the model does what Linux does: the pages
count as clean, so that a second sync reports success and writes nothing.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from pathlib import Path

from log.data_file import DataFile
from log.record_batch import Buffer
from log.storage import Storage
from tests.faults.disk_faults import PowerCut


class _Node:
    """A file or directory: what the disk has of it, and what was not yet made durable."""

    def __init__(self, *, is_directory: bool) -> None:
        self.is_directory = is_directory
        self.durable = b""
        self.taken_for_clean = b""
        self.last_content = b""
        self.names: dict[str, _Node] = {}
        self.pending: list[tuple[str, str, _Node]] = []
        """(old name or "", new name or "", node): a creation, a deletion, or a rename, which is one step."""

    def apply(self, operation: tuple[str, str, _Node]) -> None:
        old_name, new_name, node = operation
        if old_name and self.names.get(old_name) is node:
            del self.names[old_name]
        if new_name:
            self.names[new_name] = node

    def survives_sync(self, content: bytes) -> bytes:
        """What the disk has after a sync of `content`: pages that a failed sync has dropped stay dropped."""
        clean = len(self.taken_for_clean)
        if content[:clean] != self.taken_for_clean:
            return content
        return self.durable[:clean].ljust(min(clean, len(content)), b"\0") + content[clean:]


class FaultyStorage(Storage):
    """A storage under `root` whose operation number `fail_at` (from 1 on) fails as `kind` says.

    `kind`: "EIO" and "ENOSPC" raise that error, "short" writes half and then has no room, "cut" raises PowerCut.
    With `fail_for_ever` all later operations that write fail as well, until `heal`.
    """

    def __init__(
        self,
        root: Path,
        *,
        fail_at: int = 0,
        kind: str = "EIO",
        fail_for_ever: bool = False,
        max_open_files: int = 512,
    ) -> None:
        super().__init__(max_open_files)
        self.root = str(root)
        self.fail_at = fail_at
        self.kind = kind
        self.fail_for_ever = fail_for_ever
        self.operations = 0
        self.log: list[str] = []
        self.bytes_read = 0
        self._live: dict[str, _Node] = {self.root: _Node(is_directory=True)}
        self._root = self._live[self.root]

    def adopt(self) -> None:
        """Take what lies under `root` already for durable."""
        for path in sorted(Path(self.root).rglob("*")):
            self._add(str(path), is_directory=path.is_dir())
            if path.is_file():
                self._live[str(path)].durable = path.read_bytes()
        for node in self._live.values():
            for operation in node.pending:
                node.apply(operation)
            node.pending.clear()

    def heal(self) -> None:
        self.fail_at = 0

    def _fails(self, name: str, path: str) -> bool:
        self.operations += 1
        self.log.append(f"{name} {os.path.relpath(path, self.root)}")
        if not self.fail_at:
            return False
        if self.operations != self.fail_at and not (self.fail_for_ever and self.operations > self.fail_at):
            return False
        if self.kind == "cut":
            raise PowerCut(self.log[-1])
        return True

    def _error(self, path: str) -> OSError:
        number = errno.EIO if self.kind == "EIO" else errno.ENOSPC
        return OSError(number, os.strerror(number), path)

    def _check(self, name: str, path: str) -> None:
        if self._fails(name, path):
            raise self._error(path)

    # Names.

    def _add(self, path: str, *, is_directory: bool = False) -> None:
        if path not in self._live:
            self._live[path] = _Node(is_directory=is_directory)
            self._parent(path).pending.append(("", os.path.basename(path), self._live[path]))

    def _parent(self, path: str) -> _Node:
        return self._live[os.path.dirname(path)]

    def create(self, file: DataFile) -> None:
        self._check("create", file.path)
        super().create(file)
        self._add(file.path)

    def write_file(self, path: str, content: bytes) -> None:
        if self._fails("write_file", path):
            if self.kind == "short":
                super().write_file(path, content[: len(content) // 2])
                self._add(path)
            raise self._error(path)
        super().write_file(path, content)
        self._add(path)

    def rename(self, source: str, target: str) -> None:
        self._check("rename", source)
        replaced = self._live.get(target)
        if replaced is not None and not replaced.is_directory:
            replaced.last_content = Path(target).read_bytes()
        super().rename(source, target)
        node = self._live.pop(source)
        for path in [path for path in self._live if path.startswith(source + "/")]:
            self._live[target + path[len(source) :]] = self._live.pop(path)
        self._live[target] = node
        self._parent(target).pending.append((os.path.basename(source), os.path.basename(target), node))

    def delete(self, path: str) -> None:
        self._check("delete", path)
        node = self._live.get(path)
        if node is not None:
            node.last_content = Path(path).read_bytes()
            self._parent(path).pending.append((os.path.basename(path), "", self._live.pop(path)))
        super().delete(path)

    def make_directory(self, path: str) -> None:
        if path in self._live:
            return
        self._check("make_directory", path)
        os.mkdir(path)
        self._add(path, is_directory=True)
        self.sync_directory(os.path.dirname(path))

    def begin_file_system_flush(self, path: str) -> None:
        return None

    def make_undurable_directory(self, path: str) -> None:
        self._check("make_undurable_directory", path)
        super().make_undurable_directory(path)
        self._add(path, is_directory=True)

    def delete_directory(self, path: str) -> None:
        self._check("delete_directory", path)
        super().delete_directory(path)
        self._parent(path).pending.append((os.path.basename(path), "", self._live.pop(path)))

    def sync_directory(self, path: str) -> None:
        self._check("sync_directory", path)
        super().sync_directory(path)
        node = self._live[path]
        for operation in node.pending:
            node.apply(operation)
        node.pending.clear()

    def lock(self, path: str) -> None:
        super().lock(path)
        self._add(path)

    # Contents.

    def read(self, file: DataFile, size_bytes: int, position: int) -> bytes:
        data = super().read(file, size_bytes, position)
        self.bytes_read += len(data)
        return data

    def write(self, file: DataFile, buffers: Sequence[Buffer], position: int) -> int:
        if self._fails("write", file.path):
            if self.kind != "short":
                raise self._error(file.path)
            data = b"".join(bytes(buffer) for buffer in buffers)
            return super().write(file, (data[: len(data) // 2],), position)
        return super().write(file, buffers, position)

    def truncate(self, file: DataFile, size_bytes: int) -> None:
        self._check("truncate", file.path)
        super().truncate(file, size_bytes)

    def _sync(self, file: DataFile) -> None:
        # A segment may have been renamed or deleted while it was pinned.
        self._sync_node("sync", file.path, self._live.get(file.path))

    def sync_path(self, path: str) -> None:
        if path not in self._live:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._sync_node("sync_path", path, self._live[path])

    def _sync_node(self, name: str, path: str, node: _Node | None) -> None:
        fails = self._fails(name, path)
        if node is not None:
            content = Path(path).read_bytes()
            if fails:
                node.taken_for_clean = content
            else:
                node.durable = node.survives_sync(content)
        if fails:
            raise self._error(path)

    def forget_cached(self, file: DataFile) -> None:
        super().forget_cached(file)
        node = self._live[file.path]
        if node.taken_for_clean:
            Path(file.path).write_bytes(node.durable)
            node.taken_for_clean = b""

    # The crash.

    def power_cut(self, target: Path, seed: int) -> None:
        """Write into `target` what a power cut could have left.

        Seed 0 leaves only what is durable, seed 1 everything; the others a part of the names and contents.
        """
        target.mkdir()
        self._leave(self._root, self._paths(), target, random.Random(seed), seed)

    def _paths(self) -> dict[int, str]:
        return {id(node): path for path, node in self._live.items()}

    def _leave(
        self, node: _Node, paths: dict[int, str], target: Path, chance: random.Random, seed: int
    ) -> None:
        survivor = _Node(is_directory=True)
        survivor.names = dict(node.names)
        in_order = chance.randint(0, len(node.pending)) if seed % 2 else None
        for number, operation in enumerate(node.pending):
            kept = chance.random() < 0.5 if in_order is None else number < in_order
            if seed == 1 or (seed > 1 and kept):
                survivor.apply(operation)
        for name, child in survivor.names.items():
            if child.is_directory:
                (target / name).mkdir()
                self._leave(child, paths, target / name, chance, seed)
            else:
                (target / name).write_bytes(self._content_left(child, paths.get(id(child)), chance, seed))

    def _content_left(self, node: _Node, path: str | None, chance: random.Random, seed: int) -> bytes:
        content = node.last_content if path is None else Path(path).read_bytes()
        durable = node.durable
        if seed == 0:
            return durable
        content = node.survives_sync(content)
        if seed == 1 or content == durable:
            return content
        choice = chance.randrange(4)
        if choice == 0:
            return durable
        if choice == 1:
            return content
        common = len(os.path.commonprefix([durable, content]))
        if common < len(durable) and chance.random() < 0.5:
            common = 0
        cut = chance.randint(common, len(content))
        torn = content[:cut]
        return torn if choice == 2 else torn.ljust(len(content), b"\0")
