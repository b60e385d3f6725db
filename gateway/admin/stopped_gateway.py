"""The data directory of a gateway that does not run, as commands find it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from seqgate.gateway.config import Config


class StoppedGateway(NamedTuple):
    """A data directory that no gateway has open, the settings of its gateway, and the time."""

    data_dir: Path
    config: Config
    now_ms: int
