"""Deletes directories with everything in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from log.files.storage import Storage


def empty(storage: Storage, directory: str, kept: Collection[str] = ()) -> None:
    """Delete all that a directory holds, but for these names. Raises OSError."""
    for entry in storage.entries(directory):
        if entry.name in kept:
            continue
        path = f"{directory}/{entry.name}"
        if entry.is_directory:
            remove_tree(storage, path)
        else:
            storage.delete(path)


def remove_tree(storage: Storage, directory: str) -> None:
    """Delete a directory with everything in it. Raises OSError."""
    empty(storage, directory)
    storage.delete_directory(directory)
