from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.log import LocalDurability, Storage
from seqgate.pid_allocator import LastSeen, StoreWentBack, UnknownStoreVersion
from seqgate.pid_allocator.seen_file import SeenFile, newest_content

REPLACE = LocalDurability(Storage()).replace


async def test_the_last_saved_state_is_loaded(tmp_path: Path) -> None:
    file = SeenFile(tmp_path / "seen.json", REPLACE)
    assert await file.load() is None
    await file.save(LastSeen("a", 5))
    await file.save(LastSeen("b", 2**62))
    assert await SeenFile(tmp_path / "seen.json", REPLACE).load() == LastSeen("b", 2**62)
    assert [path.name for path in tmp_path.iterdir()] == ["seen.json"]


@pytest.mark.parametrize("content", [b"", b'{"store_id":"a"', b"{}", b'{"store_id":"\xff"}'])
async def test_a_damaged_file_is_not_taken_for_an_empty_memory(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "seen.json"
    path.write_bytes(content)
    with pytest.raises(StoreWentBack, match="no longer knows"):
        await SeenFile(path, REPLACE).load()


async def test_a_file_without_a_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    path.write_bytes(b'{"store_id":"a","next_producer_id":5}')
    assert await SeenFile(path, REPLACE).load() == LastSeen("a", 5)
    await SeenFile(path, REPLACE).save(LastSeen("a", 6))
    assert b'"version":1' in path.read_bytes()


async def test_a_file_of_a_later_version_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    path.write_bytes(content := b'{"version":2,"stores":[]}')
    with pytest.raises(
        UnknownStoreVersion, match=r"seen\.json has version 2; this program reads version 1\."
    ):
        await SeenFile(path, REPLACE).load()
    assert path.read_bytes() == content


def test_of_several_files_the_one_that_saw_most_is_kept() -> None:
    contents = [b'{"store_id":"a","next_producer_id":5}', b'{"store_id":"a","next_producer_id":7}']
    assert newest_content(contents) == contents[1]
    assert newest_content([*contents, b"garbage"]) == b"garbage"
    assert newest_content([]) is None
