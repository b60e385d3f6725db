"""Queued files are deleted when they are due, in limited steps, even if other files can't be deleted."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from seqgate.log import Storage
from seqgate.log.environment import LogEnvironment
from seqgate.log.files.deletion_queue import RETRY_MS, DeletionTicket
from tests.log.support import NOW_MS, delete_due


class Stubborn(Storage):
    """A storage that fails to delete paths that contain "stays"."""

    def delete(self, path: str) -> None:
        if "stays" in path:
            raise PermissionError(errno.EPERM, "no", path)
        super().delete(path)


@pytest.fixture
def environment() -> LogEnvironment:
    return LogEnvironment(Stubborn())


def files(directory: Path, *names: str, size_bytes: int = 1) -> list[str]:
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).write_bytes(b"x" * size_bytes)
    return [str(directory / name) for name in names]


def prepared(environment: LogEnvironment, max_files: int = 100, max_bytes: int = 1 << 60) -> DeletionTicket:
    ticket = environment.deletions.prepare(
        environment.storage, environment.durability, NOW_MS, max_files=max_files, max_bytes=max_bytes
    )
    assert ticket is not None
    return ticket


def left(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


class TestDue:
    def test_each_goes_at_its_time(self, environment: LogEnvironment, tmp_path: Path) -> None:
        for due_ms, path in zip((NOW_MS + 2, NOW_MS, NOW_MS + 1), files(tmp_path, *"abc"), strict=True):
            environment.deletions.add(path, due_ms)
        assert delete_due(environment, NOW_MS - 1) == 0
        assert delete_due(environment, NOW_MS) == 1
        assert left(tmp_path) == ["a", "c"]
        assert delete_due(environment, NOW_MS + 2) == 2
        assert len(environment.deletions) == 0

    def test_the_time_moves_with_the_clock(self, environment: LogEnvironment, tmp_path: Path) -> None:
        for due_ms, path in zip((NOW_MS + 2, NOW_MS + 1), files(tmp_path, *"ab"), strict=True):
            environment.deletions.add(path, due_ms)
        environment.deletions.clock_was_set(-1_000)
        assert delete_due(environment, NOW_MS - 1_000) == 0
        assert delete_due(environment, NOW_MS - 999) == 1
        assert left(tmp_path) == ["a"]

    def test_what_is_gone_already_is_done(self, environment: LogEnvironment, tmp_path: Path) -> None:
        environment.deletions.add(str(tmp_path / "file"), 0)
        environment.deletions.add(str(tmp_path / "directory"), 0, is_directory=True)
        assert delete_due(environment, NOW_MS) == 0
        assert len(environment.deletions) == 0


class TestBounds:
    def test_files(self, environment: LogEnvironment, tmp_path: Path) -> None:
        for path in files(tmp_path / "loose", *"abc"):
            environment.deletions.add(path, 0)
        files(tmp_path / "d-delete", *"abcd")
        environment.deletions.add(str(tmp_path / "d-delete"), 0, is_directory=True)
        counts = [delete_due(environment, NOW_MS, 2) for _ in range(4)]
        assert counts == [2, 2, 2, 1]
        assert left(tmp_path) == ["loose"]
        assert left(tmp_path / "loose") == []

    def test_bytes(self, environment: LogEnvironment, tmp_path: Path) -> None:
        directory = tmp_path / "d-delete"
        files(directory, *"abcd", size_bytes=60)
        environment.deletions.add(str(directory), 0, is_directory=True)
        ticket = prepared(environment, max_bytes=100)
        ticket.run()
        environment.deletions.complete(ticket, NOW_MS)
        assert (ticket.files, ticket.size_bytes, len(left(directory))) == (2, 120, 2)
        assert delete_due(environment, NOW_MS) == 2

    def test_a_cancelled_ticket_ends_before_the_next_file(
        self, environment: LogEnvironment, tmp_path: Path
    ) -> None:
        (path,) = files(tmp_path, "a")
        environment.deletions.add(path, 0)
        ticket = prepared(environment)
        ticket.cancelled = True
        ticket.run()
        environment.deletions.complete(ticket, NOW_MS)
        assert left(tmp_path) == ["a"]
        assert delete_due(environment, NOW_MS) == 1


class TestFailures:
    def test_what_fails_is_tried_again_later_and_holds_up_nothing(
        self, environment: LogEnvironment, tmp_path: Path
    ) -> None:
        first, second = files(tmp_path, "a-stays", "b")
        environment.deletions.add(first, 0)
        environment.deletions.add(second, 0)
        assert delete_due(environment, NOW_MS) == 1
        assert first in environment.deletions
        environment.storage = Storage()
        assert delete_due(environment, NOW_MS + RETRY_MS - 1) == 0
        assert delete_due(environment, NOW_MS + RETRY_MS) == 1

    def test_a_directory_that_another_process_deletes_too_goes(self, tmp_path: Path) -> None:
        class Overtaken(Storage):
            def size_bytes(self, path: str) -> int:
                size_bytes = super().size_bytes(path)
                Path(path).unlink()
                return size_bytes

            def delete(self, path: str) -> None:
                raise FileNotFoundError(errno.ENOENT, "gone", path)

        environment = LogEnvironment(Overtaken())
        files(tmp_path / "t-0-delete", *"abc")
        environment.deletions.add(str(tmp_path / "t-0-delete"), NOW_MS, is_directory=True)
        delete_due(environment, NOW_MS)
        assert left(tmp_path) == []
        assert len(environment.deletions) == 0

    def test_what_is_added_anew_while_a_ticket_is_out_waits_for_its_own_time(
        self, environment: LogEnvironment, tmp_path: Path
    ) -> None:
        (path,) = files(tmp_path, "a")
        environment.deletions.add(path, 0)
        ticket = prepared(environment)
        ticket.run()
        files(tmp_path, "a")
        environment.deletions.add(path, NOW_MS + 5)
        environment.deletions.complete(ticket, NOW_MS)
        assert delete_due(environment, NOW_MS + 4) == 0
        assert delete_due(environment, NOW_MS + 5) == 1
