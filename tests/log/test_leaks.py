"""Leaked files and directories are found by their names alone."""

from __future__ import annotations

import pytest

from seqgate.log.files import file_names
from seqgate.log.files.disk import FileEntry
from seqgate.log.files.file_names import parse_partition_directory
from seqgate.log.stopped import FileLeak, LeakKind, OpenPartition, leaks_of_directory, leaks_of_partition

OLD_MS = 1_000
BEFORE_MS = 2_000
NEW_MS = 3_000
OPEN = OpenPartition(frozenset({100, 200}), 250, 250)


def files(*names: str, modified_ms: int = OLD_MS) -> list[FileEntry]:
    return [FileEntry(name, 7, modified_ms, is_directory=False) for name in names]


def directories(*names: str) -> list[FileEntry]:
    return [FileEntry(name, 0, OLD_MS, is_directory=True) for name in names]


def at(offset: int, suffix: str) -> str:
    return f"{offset:020d}.{suffix}"


SEGMENTS = files(
    *(at(base, suffix) for base in (100, 200) for suffix in ("log", "index", "timeindex", "txnindex")),
    at(200, "snapshot"),
    "partition.metadata",
    "leader-epoch-checkpoint",
    "log-start-offset-checkpoint",
)


def of_root(*entries: FileEntry, waiting: str = "") -> dict[str, tuple[LeakKind, bool]]:
    leaks = leaks_of_directory(
        entries,
        other_names={"control.sock"},
        is_partition=lambda topic, index: (topic, index) in {("orders", 0), ("orders", 1)},
        waits=lambda path: path == waiting,
        before_ms=BEFORE_MS,
    )
    return {leak.path: (leak.kind, leak.removable) for leak in leaks}


def of_partition(
    *entries: FileEntry, opened: OpenPartition | None = OPEN, waiting: str = ""
) -> dict[str, tuple[LeakKind, bool]]:
    leaks: list[FileLeak] = list(
        leaks_of_partition(
            "p-0",
            [*SEGMENTS, *entries],
            opened=opened,
            waits=lambda path: path == waiting,
            before_ms=BEFORE_MS,
        )
    )
    return {leak.path.removeprefix("p-0/"): (leak.kind, leak.removable) for leak in leaks}


class TestRoot:
    def test_what_belongs_there(self) -> None:
        assert (
            of_root(*files(".lock", "meta.properties"), *directories("orders-0", "orders-1", "lost+found"))
            == {}
        )

    @pytest.mark.parametrize(
        ("entry", "kind", "removable"),
        [
            (directories("orders-2"), LeakKind.PARTITION, True),
            (directories("other-0"), LeakKind.PARTITION, True),
            (directories("orders-00"), LeakKind.UNKNOWN, False),
            (directories("backup"), LeakKind.UNKNOWN, False),
            (directories("orders-0.abc-delete"), LeakKind.DELETED, True),
            (files("meta.properties.tmp"), LeakKind.TEMPORARY, True),
            (files("x.deleted"), LeakKind.DELETED, True),
            (files(at(7, "log")), LeakKind.SEGMENT, False),
            (files(at(7, "index")), LeakKind.SEGMENT, False),
            (files("notes.txt"), LeakKind.UNKNOWN, True),
            (files("orders-0"), LeakKind.UNKNOWN, True),
        ],
    )
    def test_each_kind(self, entry: list[FileEntry], kind: LeakKind, removable: bool) -> None:
        assert of_root(*entry) == {entry[0].name: (kind, removable)}

    def test_what_changed_lately_or_waits_to_be_deleted_is_none(self) -> None:
        assert of_root(*files("a.tmp", modified_ms=NEW_MS)) == {}
        assert of_root(*directories("o-0.abc-delete"), waiting="o-0.abc-delete") == {}


class TestPartition:
    def test_what_belongs_there(self) -> None:
        assert of_partition() == {}
        assert of_partition(opened=None) == {}

    @pytest.mark.parametrize(
        ("name", "kind", "removable"),
        [
            (at(50, "index"), LeakKind.INDEX, True),
            (at(50, "timeindex"), LeakKind.INDEX, True),
            (at(50, "txnindex"), LeakKind.INDEX, True),
            (at(50, "log"), LeakKind.SEGMENT, False),
            (at(251, "snapshot"), LeakKind.SNAPSHOT, True),
            (at(50, "log.deleted"), LeakKind.DELETED, True),
            (at(100, "index.tmp"), LeakKind.TEMPORARY, True),
            (at(100, "log.cleaned"), LeakKind.TEMPORARY, True),
            (at(100, "log.swap"), LeakKind.TEMPORARY, False),
            ("notes.txt", LeakKind.UNKNOWN, True),
        ],
    )
    def test_each_kind(self, name: str, kind: LeakKind, removable: bool) -> None:
        assert of_partition(*files(name)) == {name: (kind, removable)}
        assert of_partition(*files(name), waiting=f"p-0/{name}") == {}
        assert of_partition(*files(name, modified_ms=NEW_MS)) == {}

    def test_an_index_of_a_log_that_is_not_open_needs_its_log_file(self) -> None:
        assert of_partition(*files(at(50, "index")), opened=None) == {at(50, "index"): (LeakKind.INDEX, True)}
        assert of_partition(*files(at(50, "index"), at(50, "log")), opened=None) == {}

    def test_old_snapshots_go_when_the_next_roll_would_drop_them(self) -> None:
        names = [at(offset, "snapshot") for offset in (10, 20, 30, 120, 210)]
        assert set(of_partition(*files(*names))) == {
            at(10, "snapshot"),
            at(20, "snapshot"),
            at(30, "snapshot"),
        }
        undurable = OPEN._replace(recovery_point=20)
        assert of_partition(*files(*names), opened=undurable) == {}

    def test_while_compaction_puts_files_in_place_nothing_else_is_a_leak(self) -> None:
        names = [at(50, "index"), at(50, "log.deleted"), at(100, "log.swap")]
        assert set(of_partition(*files(*names))) == {at(100, "log.swap")}

    def test_what_compaction_has_written_stays_while_it_goes_on(self) -> None:
        old, fresh = at(100, "log.1f.cleaned"), at(200, "log.1f.cleaned")
        assert of_partition(*files(old), *files(fresh, modified_ms=NEW_MS)) == {}
        assert set(of_partition(*files(old, fresh))) == {old, fresh}

    def test_directories_are_left_to_a_person(self) -> None:
        assert of_partition(*directories("more")) == {"more": (LeakKind.UNKNOWN, False)}


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("a-0", ("a", 0)),
        ("a-b-12", ("a-b", 12)),
        ("a-012", None),
        ("a", None),
        ("-0", None),
        ("a-0.x-delete", None),
        ("a-٣", None),
    ],
)
def test_names_of_partition_directories(name: str, parsed: tuple[str, int] | None) -> None:
    assert parse_partition_directory(name) == parsed


def test_every_file_name_that_a_partition_uses_is_known() -> None:
    used = {
        value
        for name, value in vars(file_names).items()
        if name.isupper() and isinstance(value, str) and not value.startswith(".")
    }
    assert used
    assert of_partition(*files(*used)) == {}
