"""The path of the data directory, as clients see it."""

from __future__ import annotations

from pathlib import Path

from seqgate.gateway.config import Config


def data_directory(config: Config) -> str:
    """Return the absolute path of the directory of `log.dirs`."""
    return str(Path(config.str("log.dirs")).absolute())
