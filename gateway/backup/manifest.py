"""The manifest of a backup: which data directory it is of, when, and each file with its size and checksum."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from seqgate.log import Storage


NAME: Final = "manifest.json"
VERSION: Final = 1


class CopiedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of a backup. The path is below `data`, the checksum is SHA-256 in hexadecimal.

    `inode` and `modified_ns` are those of the original: the next backup takes the same copy for a file that
    has not changed.
    """

    path: str
    size_bytes: int
    sha256: str
    inode: int
    modified_ns: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A backup. `taken_ms` is the moment whose state it has; `is_live` says that a gateway ran then."""

    version: int = VERSION
    release: str
    cluster_id: str
    directory_id: str
    node_id: str
    directory_version: str
    taken_ms: int
    is_live: bool
    partitions: int
    copied_bytes: int
    """The bytes that this backup copied; other files are links to those of the backup before."""
    files: list[CopiedFile]

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    def is_of_same_directory(self, other: Manifest) -> bool:
        """Return whether both are backups of one data directory."""
        return self.directory_id == other.directory_id != ""


class _Sealed(msgspec.Struct):
    sha256: str
    manifest: msgspec.Raw


class _Version(msgspec.Struct):
    version: int


def encode(manifest: Manifest) -> bytes:
    """Return the content of the file: the manifest, and the checksum of its bytes."""
    content = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Sealed(hashlib.sha256(content).hexdigest(), msgspec.Raw(content)))


def read(storage: Storage, backup: str) -> Manifest:
    """Return the manifest of the backup in a directory. Raises BackupError, OSError."""
    path = f"{backup}/{NAME}"
    try:
        content = storage.read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        raise BackupError(f"{backup} is no backup: it has no {NAME}") from None
    try:
        sealed = msgspec.json.decode(content, type=_Sealed)
        raw: Any = sealed.manifest
        if hashlib.sha256(raw).hexdigest() != sealed.sha256:
            raise BackupError(f"{path} is damaged: its checksum is wrong")
        version = msgspec.json.decode(raw, type=_Version).version
        if version != VERSION:
            raise BackupError(
                f"{path} has version {version}; this release reads version {VERSION}. Use the release that "
                "made the backup"
            )
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BackupError(f"{path} is damaged: {error}") from error
    for file in manifest.files:
        if not _is_inside(file.path):
            raise BackupError(f"{path} names the file {file.path!r}, which is not in the data directory")
    return manifest


def _is_inside(path: str) -> bool:
    """Return whether a path is that of a file in the data directory or in one of its directories."""
    parts = path.split("/")
    return len(parts) <= 2 and not {"", ".", ".."} & set(parts) and "\0" not in path


# The errors of backups.


class BackupError(Exception):
    """A backup can't be made, read or restored; the text is a sentence for a person."""
