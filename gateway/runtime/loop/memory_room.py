"""How much memory the machine and the cgroups of this process have to spare, and how much old data may take.

The page cache serves two kinds of readers: those of the tail, whose data was just written, and those of old
data. The kernel evicts what was unused longest, whoever read it, so a reader of a large log pushes out the
tail. `bytes_to_keep` therefore leaves a part of the memory that old data never takes.

Linux tells the memory in files; on other systems nothing is known. Sources: proc(5) for /proc/meminfo,
Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst, Documentation/accounting/psi.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

RESERVED_SHARE: Final = 4
"""One part in this many of the total memory is reserved for programs that start or grow. With less available,
old data gets only its least: the next program would have to wait until the kernel has evicted something."""
TAIL_SHARE: Final = 2
"""One part in this many of the rest stays for the tail: its consumers may be that far behind, however much
old data is read."""
STALLED_PERCENT: Final = 10.0
"""Share of the last ten seconds in which some task waited for memory, from which on old data gets only its
least. The thread of the kernel that evicts in the background counts as waiting, too. It takes a few percent
where files are written or read all the time, which is no shortage.
"""
_STALLED: Final = re.compile(r"^some .*\bavg10=(\S+)", re.MULTILINE)
CGROUPS_ASKED: Final = 16
"""Nested cgroups that are asked, from the process's own outwards; the limits of further ones are ignored."""


class MemoryRoom(NamedTuple):
    total_bytes: int
    available_bytes: int
    """Memory that is free or holds clean pages of files, which the kernel takes back without a wait. What old
    data takes of the page cache is available, too, so keeping more does not change the rule's result.
    """
    stalled_percent: float = 0.0
    """Share of the last ten seconds in which some task waited for memory; 0 where it is not known."""

    @property
    def spare_bytes(self) -> int:
        """Return the available memory without the reserve; negative where the reserve is touched."""
        return self.available_bytes - self.total_bytes // RESERVED_SHARE


def bytes_to_keep(room: MemoryRoom | None, *, least: int, most: int, processes: int = 1) -> int:
    """Return how many bytes of old data may stay in the page cache: at least `least`, at most `most`.

    `room` is None where the memory is not known. `processes` share the room and follow this rule alike.
    """
    if room is None or room.stalled_percent >= STALLED_PERCENT:
        return least
    return max(least, min(most, room.spare_bytes // TAIL_SHARE // processes))


class _Version(NamedTuple):
    """The names of a cgroup's files in one version of cgroups."""

    controller: str
    """The name in /proc/self/cgroup."""
    mount: str
    limits: tuple[str, ...]
    usage: str
    clean: frozenset[str]
    """The rows of memory.stat with pages of files. Both lists count: what two groups have read is active."""


_VERSIONS: Final = (
    _Version(
        "",
        "sys/fs/cgroup",
        ("memory.max", "memory.high"),
        "memory.current",
        frozenset({"inactive_file", "active_file"}),
    ),
    _Version(
        "memory",
        "sys/fs/cgroup/memory",
        ("memory.limit_in_bytes",),
        "memory.usage_in_bytes",
        frozenset({"total_inactive_file", "total_active_file"}),
    ),
)


class MemoryFiles:
    """The files in which Linux tells the memory of the machine and of this process's cgroups.

    Reading them takes 0.2 ms, and longer where the kernel must add up a large cgroup: call in a thread.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        """Find the files under `root`, which is another directory in tests."""
        self._meminfo = root / "proc/meminfo"
        self._cgroups = list(_cgroups(root))
        own = next((folder for version, folder in self._cgroups if not version.controller), None)
        self._pressures = [root / "proc/pressure/memory"]
        if own is not None:
            # Stalls of other containers are none of this process's.
            self._pressures.insert(0, own / "memory.pressure")

    def read(self) -> MemoryRoom | None:
        """Return the room of the machine or cgroup that has the least to spare; None if it is unknown."""
        try:
            machine = _fields(self._meminfo)
            rooms = [MemoryRoom(machine["MemTotal"] << 10, machine["MemAvailable"] << 10)]
        except (OSError, KeyError, ValueError):
            return None
        for version, folder in self._cgroups:
            with suppress(OSError, ValueError):
                limit = _limit(version, folder)
                if limit is not None and limit < rooms[0].total_bytes:
                    stat = _fields(folder / "memory.stat")
                    clean = sum(stat.get(name, 0) for name in version.clean)
                    used = int((folder / version.usage).read_text("ascii")) - clean
                    rooms.append(MemoryRoom(limit, max(0, limit - used)))
        tightest = min(rooms, key=lambda room: room.spare_bytes)
        return tightest._replace(stalled_percent=self._stalled_percent())

    def _stalled_percent(self) -> float:
        """Return the share that the innermost file tells; kernels without this accounting refuse to read."""
        for path in self._pressures:
            with suppress(OSError, ValueError):
                found = _STALLED.search(path.read_text("ascii"))
                if found is not None:
                    return float(found[1])
        return 0.0


def _cgroups(root: Path) -> Iterator[tuple[_Version, Path]]:
    """Yield the cgroups that this process is in, from its own outwards, as far as they are visible. In a
    container the path may name a directory outside of it, and the mount itself is the container's cgroup.
    """
    try:
        rows = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().splitlines()]
    except (OSError, ValueError):
        return
    for version in _VERSIONS:
        for _, controllers, path in (row for row in rows if len(row) == 3):
            if version.controller in controllers.split(","):
                mount = root / version.mount
                inside = mount / path.strip("/")
                for folder in [inside, *inside.parents][:CGROUPS_ASKED]:
                    if (folder / version.usage).exists():
                        yield version, folder
                    if folder == mount:
                        break


def _limit(version: _Version, folder: Path) -> int | None:
    """Return the limit of a cgroup in bytes; None without one. Raises OSError, ValueError."""
    texts = [(folder / name).read_text("ascii").strip() for name in version.limits]
    return min((int(text) for text in texts if text != "max"), default=None)


def _fields(path: Path) -> dict[str, int]:
    """Return the numbers of a file of names and numbers. Raises OSError, ValueError."""
    found = {}
    for line in path.read_text("ascii").splitlines():
        words = line.split()
        if len(words) > 1:
            found[words[0].rstrip(":")] = int(words[1])
    return found
