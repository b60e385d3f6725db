"""Replaces a small file, so that a reader or a crash of the process finds its old content or its new one.

Nothing is durable before a flush; `DurableFiles.replace` replaces durably.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from log.files.file_names import TEMPORARY_SUFFIX

if TYPE_CHECKING:
    from log.files.storage import Storage


def replace(storage: Storage, path: str, content: bytes) -> str:
    """Write a temporary file and rename it. Return the path, not durable yet. Raises OSError."""
    storage.write_file(path + TEMPORARY_SUFFIX, content)
    storage.rename(path + TEMPORARY_SUFFIX, path)
    return path
