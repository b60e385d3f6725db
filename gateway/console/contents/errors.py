"""The error of this package."""

from __future__ import annotations


class ContentError(Exception):
    """A content or a schema can't be read; the message is one sentence."""
