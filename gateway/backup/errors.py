"""The errors of backups."""

from __future__ import annotations


class BackupError(Exception):
    """A backup can't be made, read or restored; the text is a sentence for a person."""
