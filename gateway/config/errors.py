"""The error of a setting."""

from __future__ import annotations


class ConfigError(Exception):
    """A setting that is unknown, malformed or out of range; the message is one sentence for the operator."""
