"""How much old data may stay in the page cache follows the memory of the machine, of cgroups, and stalls."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.runtime.loop.memory_room import (
    CGROUPS_ASKED,
    RESERVED_SHARE,
    STALLED_PERCENT,
    MemoryFiles,
    MemoryRoom,
    bytes_to_keep,
)

MIB = 1 << 20
GIB = 1 << 30
MACHINE = MemoryRoom(16 * GIB, 12 * GIB)
SIZES = st.integers(0, 1 << 44)


def kept(room: MemoryRoom | None, *, processes: int = 1) -> int:
    return bytes_to_keep(room, least=64 * MIB, most=16 * GIB, processes=processes)


class TestTheRule:
    @pytest.mark.parametrize(
        ("room", "expected"),
        [
            (MACHINE, 4 * GIB),
            (MemoryRoom(16 * GIB, 16 * GIB), 6 * GIB),
            (MemoryRoom(16 * GIB, 4 * GIB), 64 * MIB),
            (MemoryRoom(16 * GIB, 0), 64 * MIB),
            (MemoryRoom(512 * MIB, 512 * MIB), 192 * MIB),
            (MemoryRoom(256 * GIB, 250 * GIB), 16 * GIB),
            (MACHINE._replace(stalled_percent=STALLED_PERCENT), 64 * MIB),
            (MACHINE._replace(stalled_percent=STALLED_PERCENT - 0.01), 4 * GIB),
            (None, 64 * MIB),
        ],
    )
    def test_examples(self, room: MemoryRoom | None, expected: int) -> None:
        assert kept(room) == expected

    @given(SIZES, SIZES, SIZES, st.integers(1, 64), st.floats(0, 100))
    def test_the_tail_always_has_its_part(
        self, total: int, available: int, less: int, processes: int, stalled_percent: float
    ) -> None:
        """All processes together leave half of what is available, and the reserve. Less memory never keeps
        more.
        """
        room = MemoryRoom(total, available, stalled_percent)
        each = bytes_to_keep(room, least=64 * MIB, most=1 << 50, processes=processes)
        assert each == 64 * MIB or 2 * each * processes <= available - total // RESERVED_SHARE
        worse = room._replace(available_bytes=max(0, available - less))
        assert kept(worse, processes=processes) <= kept(room, processes=processes)
        assert 64 * MIB <= kept(room, processes=processes) <= 16 * GIB


class TestTheFiles:
    """A directory stands for the root, with files as the kernel writes them."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        meminfo = f"MemTotal: {16 * MIB} kB\nMemFree: 1 kB\nMemAvailable: {12 * MIB} kB\nHugePages_Total: 0\n"
        write(tmp_path / "proc/meminfo", meminfo)
        stall(tmp_path / "proc/pressure/memory", 3.25)
        return tmp_path

    def test_a_machine_without_cgroups(self, root: Path) -> None:
        assert MemoryFiles(root).read() == MACHINE._replace(stalled_percent=3.25)

    def test_a_system_that_tells_nothing(self, tmp_path: Path) -> None:
        assert MemoryFiles(tmp_path).read() is None
        write(tmp_path / "proc/meminfo", "MemTotal: 100 kB\n")  # Linux before 3.14
        assert MemoryFiles(tmp_path).read() is None

    def test_a_kernel_that_does_not_account_for_stalls(self, root: Path) -> None:
        (root / "proc/pressure/memory").unlink()
        assert MemoryFiles(root).read() == MACHINE

    def test_the_tightest_cgroup_decides(self, root: Path) -> None:
        join(root, "0::/pod/gateway")
        # A root has no limits; what two groups have read is on the list of active files.
        cgroup(root, "pod", limits=("max", 2 * GIB), used=GIB, inactive=200 * MIB, active=300 * MIB)
        cgroup(root, "pod/gateway", limits=(8 * GIB, "max"), used=2 * GIB, inactive=GIB, active=0)
        assert MemoryFiles(root).read() == MemoryRoom(2 * GIB, GIB + 500 * MIB, 3.25)
        cgroup(root, "pod/gateway", limits=(8 * GIB, GIB), used=GIB, inactive=0, active=0)
        stall(root / "sys/fs/cgroup/pod/gateway/memory.pressure", 0.5)
        assert MemoryFiles(root).read() == MemoryRoom(GIB, 0, 0.5)

    def test_a_container_sees_its_own_cgroup_at_the_mount(self, root: Path) -> None:
        join(root, "0::/../../docker/of-the-host")
        cgroup(root, "", limits=(GIB, "max"), used=GIB // 2, inactive=0, active=0)
        assert MemoryFiles(root).read() == MemoryRoom(GIB, GIB // 2, 3.25)

    def test_the_first_version_of_cgroups(self, root: Path) -> None:
        join(root, "5:cpu,cpuacct:/a", "4:memory:/a", "0::/")
        folder = root / "sys/fs/cgroup/memory/a"
        write(folder / "memory.limit_in_bytes", f"{GIB}\n")
        write(folder / "memory.usage_in_bytes", f"{900 * MIB}\n")
        write(folder / "memory.stat", f"inactive_file 7\ntotal_inactive_file {100 * MIB}\nactive_file 1\n")
        assert MemoryFiles(root).read() == MemoryRoom(GIB, GIB - 800 * MIB, 3.25)

    def test_a_limit_above_the_machines_memory_is_none(self, root: Path) -> None:
        join(root, "0::/a")
        cgroup(root, "a", limits=(2**63 - 4096, "max"), used=GIB, inactive=0, active=0)
        assert MemoryFiles(root).read() == MACHINE._replace(stalled_percent=3.25)

    def test_a_deep_path_is_asked_to_a_limit(self, root: Path) -> None:
        path = "/".join("abcdefghijklmnopqrstuvwxyz"[: CGROUPS_ASKED + 1])
        join(root, f"0::/{path}")
        cgroup(root, "a", limits=(GIB, "max"), used=0, inactive=0, active=0)
        assert MemoryFiles(root).read() == MACHINE._replace(stalled_percent=3.25)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def stall(path: Path, percent: float) -> None:
    rest = "avg60=99.00 avg300=99.00 total=123456"
    write(path, f"some avg10={percent:.2f} {rest}\nfull avg10=88.00 {rest}\n")


def join(root: Path, *rows: str) -> None:
    write(root / "proc/self/cgroup", "".join(f"{row}\n" for row in rows))


def cgroup(
    root: Path, path: str, *, limits: tuple[int | str, int | str], used: int, inactive: int, active: int
) -> None:
    folder = root / "sys/fs/cgroup" / path
    for name, content in zip(("memory.max", "memory.high", "memory.current"), (*limits, used), strict=True):
        write(folder / name, f"{content}\n")
    write(folder / "memory.stat", f"anon 5\ninactive_file {inactive}\nactive_file {active}\nshmem 6\n")
