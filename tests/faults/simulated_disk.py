"""A disk in memory with injected failures, and the view of one process on it.

    disk = SimulatedDisk(random.Random(seed))
    disk.provide_directory("/data")
    storage = Storage(disk=disk.process())
    ...
    disk.power_cut(random.Random(seed))     # or disk.kill(): the page cache stays
    storage = Storage(disk=disk.process())  # what is there now

Every call of a dead process raises PowerCut, so the call does not reach the disk; only `close` is silent.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.faults.disk_contents import Chance, Directory, File, Naming, Node
from tests.faults.disk_faults import Faults, PowerCut
from tests.faults.disk_process import COLD_BLOCK_BYTES, SimulatedProcess

__all__ = ["PowerCut", "SimulatedDisk", "SimulatedProcess"]
_LOGGED: Final = 100_000


class SimulatedDisk:
    """Files and directories in memory. `chance` chooses the faults by `plan.rates`, and what a failed sync
    leaves.
    """

    def __init__(
        self,
        chance: random.Random | None = None,
        *,
        capacity_bytes: int | None = None,
        max_descriptors: int | None = None,
        now_ms: Callable[[], int] = lambda: 0,
        on_latency: Callable[[float], None] | None = None,
        tells_cached: bool = False,
    ) -> None:
        self.chance = chance
        self.capacity_bytes = capacity_bytes
        self.max_descriptors = max_descriptors
        """The limit of open descriptors of one process."""
        self.now_ms = now_ms
        self.on_latency = on_latency
        self.tells_cached = tells_cached
        self.plan = Faults(chance or random.Random(0))
        """The faults that later operations meet."""
        self.faults: Counter[str] = Counter()
        """The number of faults of each kind so far."""
        self.log: deque[str] = deque(maxlen=_LOGGED)
        """The last operations that changed something or made it durable."""
        self.before_operation: Callable[[str], None] | None = None
        """Called before each numbered operation."""
        self.bytes_read = 0
        self.root = Directory()
        self.root.is_linked = True
        self.used_bytes = 0
        self.last_descriptor = 999
        """Descriptors are never reused, so that the use of a stale one fails."""
        self.lock = threading.RLock()
        self.locks: dict[int, tuple[SimulatedProcess, int]] = {}
        """The process and descriptor that hold the lock of a node, by the node's id."""
        self._processes: list[SimulatedProcess] = []

    def process(self) -> SimulatedProcess:
        """Return the disk as a new process sees it: a `seqgate.log.files.disk.Disk`."""
        process = SimulatedProcess(self)
        self._processes.append(process)
        return process

    # --- the end of all processes

    def kill(self) -> None:
        """Kill all processes at once; their writes stay, durable or not."""
        with self.lock:
            self.faults["kill"] += 1
            self.end_processes()

    def end_processes(self) -> None:
        """Mark all processes as dead."""
        with self.lock:
            for process in self._processes:
                process.die()
            self._processes.clear()

    def power_cut(self, chance: Chance | None, *, tears: bool = True) -> None:
        """Cut the power: `chance` chooses which part of the pending changes stays; without `chance` none
        does.

        With `tears` False, writes stay whole and `chance` is asked only for small choices, so that a test can
        try all of them.
        """
        with self.lock:
            self.end_processes()
            self.faults["power cut"] += 1
            self._lose_power(self.root, chance, tears=tears, seen=set())
            self.used_bytes = sum(len(node.cached) for _, node in self._walk() if isinstance(node, File))

    def power_cut_by_seed(self, seed: int) -> None:
        """Cut the power: seed 0 leaves only durable data, seed 1 everything, any other seed a random part."""
        if seed == 1:
            self.make_durable()
        self.power_cut(random.Random(seed) if seed > 1 else None)

    def _lose_power(
        self, directory: Directory, chance: Chance | None, *, tears: bool, seen: set[int]
    ) -> None:
        directory.lose_power(chance, tears=tears)
        for node in directory.cached.values():
            node.is_linked = True
            if isinstance(node, Directory):
                self._lose_power(node, chance, tears=tears, seen=seen)
            elif id(node) not in seen:
                seen.add(id(node))
                node.lose_power(chance, tears=tears)

    def make_durable(self) -> None:
        """Make all files and directories durable."""
        with self.lock:
            for node in self.nodes():
                node.sync()

    def nodes(self) -> Iterator[Node]:
        """Yield the root directory, and every file and directory that a path leads to."""
        yield self.root
        for _, node in self._walk():
            yield node

    def copy(self) -> SimulatedDisk:
        """Return a disk of its own with the same contents, without faults or processes."""
        with self.lock:
            twin = SimulatedDisk(
                self.chance,
                capacity_bytes=self.capacity_bytes,
                max_descriptors=self.max_descriptors,
                now_ms=self.now_ms,
                tells_cached=self.tells_cached,
            )
            copied: dict[int, Node] = {}
            root = _copy(self.root, copied)
            assert isinstance(root, Directory)
            twin.root = root
            twin.used_bytes = self.used_bytes
            return twin

    def fingerprint(self) -> tuple[object, ...]:
        """Return a value that is equal for disks which no process could tell apart, if all bytes and names
        are durable.
        """
        return tuple(
            sorted(
                (path, bytes(node.cached) if isinstance(node, File) else b"") for path, node in self._walk()
            )
        )

    # --- access from outside, without faults

    def provide_directory(self, path: str) -> None:
        """Make a durable directory with all directories above it."""
        directory = self.root
        for name in _names(path):
            node = directory.cached.get(name)
            if node is None:
                node = Directory()
                node.is_linked = True
                directory.cached[name] = directory.platter[name] = node
            assert isinstance(node, Directory)
            directory = node

    def put(self, path: str, content: bytes) -> None:
        """Write a file durably, with its name."""
        with self.lock:
            directory, name = self.find_parent(path)
            node = directory.cached.get(name)
            if node is None:
                node = File()
                node.is_linked = True
            assert isinstance(node, File)
            self.used_bytes += len(content) - len(node.cached)
            directory.cached[name] = directory.platter[name] = node
            node.pending.clear()
            node.cached, node.platter = bytearray(content), bytearray(content)
            node.holes.cut(0)
            node.platter_holes.cut(0)

    def adopt(self, real: Path) -> None:
        """Copy a directory of the system's disk with its contents, durably."""
        self.provide_directory(str(real))
        for path in sorted(real.rglob("*")):
            if path.is_dir():
                self.provide_directory(str(path))
            else:
                self.put(str(path), path.read_bytes())

    def content(self, path: str) -> bytes:
        """Return the contents that a process would read."""
        with self.lock:
            node = self.find(path)
            assert isinstance(node, File)
            return bytes(node.cached)

    def files(self, under: str = "/") -> dict[str, int]:
        """Return all files below a directory with their sizes in bytes, by name."""
        with self.lock:
            prefix = under.rstrip("/") + "/"
            found = {path: len(node.cached) for path, node in self._walk() if isinstance(node, File)}
            return {path: found[path] for path in sorted(found) if path.startswith(prefix)}

    def flip_bit(self, path: str, bit: int) -> None:
        """Flip one bit of a file at rest."""
        with self.lock:
            node = self.find(path)
            assert isinstance(node, File)
            for content in (node.cached, node.platter):
                if bit // 8 < len(content):
                    content[bit // 8] ^= 1 << bit % 8
            self.faults["bit flip"] += 1

    def make_cold(self, path: str) -> None:
        """Drop the file from the page cache."""
        with self.lock:
            node = self.find(path)
            assert isinstance(node, File)
            node.cold.update(range(-(-len(node.cached) // COLD_BLOCK_BYTES)))

    def find(self, path: str) -> Node:
        """Return the node of a path. Raises FileNotFoundError, NotADirectoryError."""
        node: Node = self.root
        for name in _names(path):
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            found = node.cached.get(name)
            if found is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = found
        return node

    def find_parent(self, path: str) -> tuple[Directory, str]:
        """Return the directory of a path, and the name in it."""
        *above, name = _names(path)
        directory = self.find("/" + "/".join(above))
        if not isinstance(directory, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return directory, name

    def _walk(self) -> Iterator[tuple[str, Node]]:
        below: list[tuple[str, Directory]] = [("", self.root)]
        while below:
            above, directory = below.pop()
            for name, node in directory.cached.items():
                yield f"{above}/{name}", node
                if isinstance(node, Directory):
                    below.append((f"{above}/{name}", node))


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name and name != "."]


def _copy(node: Node, copied: dict[int, Node]) -> Node:
    twin = copied.get(id(node))
    if twin is not None:
        return twin
    if isinstance(node, File):
        twin = copied[id(node)] = File()
        twin.cached, twin.platter = bytearray(node.cached), bytearray(node.platter)
        twin.pending = list(node.pending)
        twin.holes, twin.platter_holes = node.holes.copy(), node.platter_holes.copy()
    else:
        twin = copied[id(node)] = Directory()
        twin.cached = {name: _copy(child, copied) for name, child in node.cached.items()}
        twin.platter = {name: _copy(child, copied) for name, child in node.platter.items()}
        twin.pending = [Naming(_copy(child, copied), old, new) for child, old, new in node.pending]
    twin.modified_ms, twin.is_linked = node.modified_ms, node.is_linked
    return twin
