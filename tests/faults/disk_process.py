"""The view of one process on a simulated disk: the calls of `seqgate.log.files.disk.Disk`, which end when the
process dies."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from seqgate.log.files.disk import FileEntry
from seqgate.log.format.record_batch import Buffer
from tests.faults.disk_contents import Change, Directory, File, Naming, Node
from tests.faults.disk_faults import PowerCut, error

if TYPE_CHECKING:
    from tests.faults.simulated_disk import SimulatedDisk

COLD_BLOCK_BYTES: Final = 256 << 10

FREE_BYTES = 1 << 50
"""The free space that the disk reports; writes fail for lack of space only where the faults say so."""


class _Opened(NamedTuple):
    node: Node
    path: str
    is_writable: bool


class SimulatedProcess:
    """A process, made by `SimulatedDisk.process`.

    A simulation may replace `send`, through which data goes to sockets.
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.is_alive = True
        self.send: Callable[[int, bytes], int] = os.write
        self._opened: dict[int, _Opened] = {}

    @property
    def tells_cached(self) -> bool:
        return self.disk.tells_cached

    @property
    def descriptors(self) -> int:
        """Return the number of open descriptors."""
        return len(self._opened)

    def die(self) -> None:
        """Die as by `kill -9`: descriptors and locks are released, nothing is flushed."""
        with self.disk.lock:
            self.is_alive = False
            for descriptor in list(self._opened):
                self.close(descriptor)

    # --- descriptors

    def open(self, path: str, flags: int, mode: int = 0o777, /) -> int:
        disk = self.disk
        self._wait()
        with disk.lock:
            self._check_alive(path)
            parent, name = disk.find_parent(path) if path.strip("/") else (None, "")
            node = disk.root if parent is None else parent.cached.get(name)
            changes = node is None or bool(flags & os.O_TRUNC)
            if node is None and not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._fail(self._decide("create" if changes else "open", path), path)
            if disk.max_descriptors is not None and len(self._opened) >= disk.max_descriptors:
                disk.faults["EMFILE"] += 1
                raise error("EMFILE", path)
            if node is None:
                assert parent is not None
                node = File()
                self._name(parent, Naming(node, "", name))
                node.modified_ms = disk.now_ms()
            if isinstance(node, Directory):
                if flags & (os.O_WRONLY | os.O_RDWR):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            elif flags & os.O_DIRECTORY:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            elif flags & os.O_TRUNC and node.cached:
                self._change(node, Change(0, None))
            disk.last_descriptor += 1
            node.descriptors += 1
            is_writable = bool(flags & (os.O_WRONLY | os.O_RDWR))
            self._opened[disk.last_descriptor] = _Opened(node, path, is_writable)
            return disk.last_descriptor

    def close(self, descriptor: int, /) -> None:
        disk = self.disk
        with disk.lock:
            opened = self._opened.pop(descriptor, None)
            if opened is None:
                if self.is_alive:
                    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
                return
            node = opened.node
            if disk.locks.get(id(node)) == (self, descriptor):
                del disk.locks[id(node)]
            node.descriptors -= 1
            self._free(node)

    def pread(self, descriptor: int, size_bytes: int, position: int, /) -> bytes:
        self._wait()
        with self.disk.lock:
            file, path = self._file(descriptor)
            self._fail(self._decide("read", path), path)
            file.holes.check_read(position, size_bytes, path)
            data = bytes(file.cached[position : position + size_bytes])
            self.disk.bytes_read += len(data)
            return data

    def pwritev(self, descriptor: int, buffers: Sequence[Buffer], position: int, /) -> int:
        self._wait()
        with self.disk.lock:
            file, path = self._file(descriptor, errno.EBADF)
            kind = self._decide("write", path)
            data = b"".join(buffers)
            size_bytes = len(data)
            if kind == "short":
                size_bytes //= 2
                self.disk.faults["short"] += 1
            else:
                self._fail(kind, path)
            size_bytes = self._room(file, position, size_bytes, path)
            file.modified_ms = self.disk.now_ms()
            if size_bytes:
                self._change(file, Change(position, data[:size_bytes]))
            return size_bytes

    def ftruncate(self, descriptor: int, size_bytes: int, /) -> None:
        self._wait()
        with self.disk.lock:
            file, path = self._file(descriptor, errno.EINVAL)
            self._fail(self._decide("truncate", path), path)
            if size_bytes > len(file.cached):
                self._room(file, 0, size_bytes, path)
            file.modified_ms = self.disk.now_ms()
            self._change(file, Change(size_bytes, None))

    def punch(self, descriptor: int, position: int, size_bytes: int, /) -> None:
        self._wait()
        with self.disk.lock:
            file, path = self._file(descriptor, errno.EBADF)
            self._fail(self._decide("punch", path), path)
            file.punch(position, min(size_bytes, len(file.cached) - position))

    def fdatasync(self, descriptor: int, /) -> None:
        self._wait()
        with self.disk.lock:
            node, path, _ = self._node(descriptor)
            kind = self._decide("sync_directory" if node.is_directory else "sync", path)
            if kind:
                if kind != "cut":
                    node.fail_sync(self.disk.chance)
                self._fail(kind, path)
            node.sync()

    fsync = fdatasync

    def find_syncfs(self) -> Callable[[int], None] | None:
        return self._syncfs

    def _syncfs(self, descriptor: int) -> None:
        self._wait()
        with self.disk.lock:
            path = self._node(descriptor).path
            kind = self._decide("sync", path)
            if kind and kind != "cut":
                for node in self.disk.nodes():
                    node.fail_sync(self.disk.chance)
            self._fail(kind, path)
            self.disk.make_durable()

    def open_size_bytes(self, descriptor: int, /) -> int:
        with self.disk.lock:
            return len(self._file(descriptor)[0].cached)

    def sendfile(self, socket_descriptor: int, descriptor: int, position: int, size_bytes: int, /) -> int:
        data = self.pread(descriptor, size_bytes, position)
        return self.send(socket_descriptor, data) if data else 0

    def lock(self, descriptor: int, /) -> None:
        with self.disk.lock:
            node, path, _ = self._node(descriptor)
            if id(node) in self.disk.locks:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
            self.disk.locks[id(node)] = self, descriptor

    # --- the page cache

    def lock_holder(self, descriptor: int, /) -> int | None:
        return None

    def be_asked(self, descriptor: int, /) -> None:
        with self.disk.lock:
            self._file(descriptor)

    def is_cached(self, descriptor: int, position: int, size_bytes: int, /) -> bool:
        with self.disk.lock:
            return self._file(descriptor)[0].cold.isdisjoint(_blocks(position, size_bytes))

    def read_cached(self, descriptor: int, buffer: memoryview, position: int, /) -> int:
        if not self.is_cached(descriptor, position, len(buffer)):
            return -1
        data = self.pread(descriptor, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def bring_in(self, descriptor: int, position: int, size_bytes: int, /) -> int:
        data = self.pread(descriptor, size_bytes, position)
        with self.disk.lock:
            self._file(descriptor)[0].cold.difference_update(_blocks(position, size_bytes))
        return len(data)

    def drop_cached(self, descriptor: int, position: int, size_bytes: int, /) -> None:
        with self.disk.lock:
            file, _ = self._file(descriptor)
            file.forget_cached()
            if self.tells_cached and not file.pending:
                size_bytes = size_bytes or len(file.cached) - position
                file.cold.update(_blocks(position, size_bytes))

    # --- file names

    def replace(self, source: str, target: str, /) -> None:
        disk = self.disk
        self._wait()
        with disk.lock:
            self._check_alive(source)
            parent, old_name = disk.find_parent(source)
            target_parent, new_name = disk.find_parent(target)
            assert parent is target_parent, (
                "a rename between directories is two steps, which is not simulated"
            )
            node = disk.find(source)
            self._fail(self._decide("rename", source), source)
            replaced = parent.cached.get(new_name)
            if replaced is node:
                return
            if replaced is not None:
                _check_replaceable(node, replaced, target)
            self._name(parent, Naming(node, old_name, new_name))
            if replaced is not None:
                self._unlink(replaced)

    def unlink(self, path: str, /) -> None:
        self._remove("unlink", path, is_directory=False)

    def mkdir(self, path: str, /) -> None:
        self._wait()
        with self.disk.lock:
            self._check_alive(path)
            parent, name = self.disk.find_parent(path)
            if name in parent.cached:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self._fail(self._decide("mkdir", path), path)
            self._name(parent, Naming(Directory(), "", name))

    def rmdir(self, path: str, /) -> None:
        self._remove("rmdir", path, is_directory=True)

    def _remove(self, operation: str, path: str, *, is_directory: bool) -> None:
        self._wait()
        with self.disk.lock:
            self._check_alive(path)
            node = self.disk.find(path)
            if node.is_directory != is_directory:
                number = errno.ENOTDIR if is_directory else errno.EISDIR
                raise OSError(number, os.strerror(number), path)
            if isinstance(node, Directory) and node.cached:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
            self._fail(self._decide(operation, path), path)
            parent, name = self.disk.find_parent(path)
            self._name(parent, Naming(node, name, ""))
            self._unlink(node)

    def exists(self, path: str, /) -> bool:
        with self.disk.lock:
            self._check_alive(path)
            with suppress(OSError):
                return bool(self.disk.find(path))
            return False

    def real_path(self, path: str, /) -> str:
        return path  # a simulated disk has no links

    def is_directory(self, path: str, /) -> bool:
        with self.disk.lock:
            return self.exists(path) and self.disk.find(path).is_directory

    def size_bytes(self, path: str, /) -> int:
        return _entry("", self._look_at(path)).size_bytes

    def modified_ms(self, path: str, /) -> int:
        return self._look_at(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int, /) -> None:
        self._wait()
        with self.disk.lock:
            self._check_alive(path)
            node = self.disk.find(path)
            self._fail(self._decide("utime", path), path)
            node.modified_ms = modified_ms

    def free_bytes(self, path: str, /) -> int:
        with self.disk.lock:
            self._check_alive(path)
        return FREE_BYTES

    def list_directory(self, path: str, /) -> list[str]:
        return [entry.name for entry in self.entries(path)]

    def some_names(self, path: str, limit: int, /) -> list[str]:
        return self.list_directory(path)[:limit]

    def entries(self, path: str, /) -> list[FileEntry]:
        node = self._look_at(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        with self.disk.lock:
            names = sorted(node.cached, key=lambda name: zlib.crc32(name.encode()))
            return [_entry(name, node.cached[name]) for name in names]

    def list_files(self, path: str, /) -> dict[str, int]:
        return {entry.name: entry.size_bytes for entry in self.entries(path) if not entry.is_directory}

    # --- used by all calls

    def _check_alive(self, path: str) -> None:
        if not self.is_alive:
            raise PowerCut(path)

    def _wait(self) -> None:
        disk = self.disk
        if disk.plan.rates.latency:
            with disk.lock:
                seconds = disk.plan.latency_s()
            if seconds and disk.on_latency is not None:
                disk.faults["latency"] += 1
                disk.on_latency(seconds)

    def _decide(self, operation: str, path: str) -> str:
        disk = self.disk
        if operation not in {"open", "read", "list"}:
            described = f"{operation} {path}"
            if disk.before_operation is not None:
                disk.before_operation(described)
            disk.log.append(described)
        return disk.plan.decide(operation, path)

    def _fail(self, kind: str, path: str) -> None:
        if kind == "cut":
            if self.disk.plan.on_cut is not None:
                self.disk.plan.on_cut()
            self.disk.end_processes()
            raise PowerCut(self.disk.log[-1] if self.disk.log else path)
        if kind:
            self.disk.faults[kind] += 1
            raise error(kind, path)

    def _node(self, descriptor: int) -> _Opened:
        self._check_alive("a descriptor")
        opened = self._opened.get(descriptor)
        if opened is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return opened

    def _file(self, descriptor: int, unless_writable: int = 0) -> tuple[File, str]:
        node, path, is_writable = self._node(descriptor)
        if unless_writable and not is_writable:
            raise OSError(unless_writable, os.strerror(unless_writable), path)
        if not isinstance(node, File):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node, path

    def _look_at(self, path: str) -> Node:
        self._wait()
        with self.disk.lock:
            self._check_alive(path)
            node = self.disk.find(path)
            self._fail(self._decide("list", path), path)
            return node

    def _name(self, parent: Directory, naming: Naming) -> None:
        naming.node.is_linked = True
        parent.change(naming)
        parent.modified_ms = self.disk.now_ms()

    def _unlink(self, node: Node) -> None:
        node.is_linked = False
        self._free(node)

    def _free(self, node: Node) -> None:
        if isinstance(node, File) and not node.is_linked and not node.descriptors:
            self.disk.used_bytes -= len(node.cached)

    def _change(self, file: File, change: Change) -> None:
        before = len(file.cached)
        file.change(change)
        self.disk.used_bytes += len(file.cached) - before

    def _room(self, file: File, position: int, size_bytes: int, path: str) -> int:
        """Return how many bytes may be written. Raises OSError for none."""
        disk = self.disk
        if disk.capacity_bytes is None or not size_bytes:
            return size_bytes
        end = max(position, len(file.cached)) + max(0, disk.capacity_bytes - disk.used_bytes)
        fits = min(size_bytes, end - position)
        if fits <= 0:
            disk.faults["ENOSPC"] += 1
            raise error("ENOSPC", path)
        if fits < size_bytes:
            disk.faults["short"] += 1
        return fits


def _blocks(position: int, size_bytes: int) -> range:
    return range(position // COLD_BLOCK_BYTES, -(-(position + size_bytes) // COLD_BLOCK_BYTES))


def _entry(name: str, node: Node) -> FileEntry:
    size_bytes = len(node.cached) if isinstance(node, File) else 0
    return FileEntry(name, size_bytes, node.modified_ms, node.is_directory)


def _check_replaceable(node: Node, replaced: Node, target: str) -> None:
    if isinstance(replaced, Directory):
        if not node.is_directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
        if replaced.cached:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
    elif node.is_directory:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), target)
