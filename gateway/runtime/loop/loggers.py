"""The loggers of this process and their levels, under Kafka's names of levels. A level lasts until the process ends."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

ROOT: Final = "root"
TRACE: Final = 5
START_LEVEL: Final = logging.INFO
_LEVELS: Final[Mapping[str, int]] = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def levels() -> dict[str, str]:
    """The level in effect of every logger, by its name; `root` is the one that all inherit from.

    Packages are among them: what is set on `gateway.server` holds for all its modules that have no level of their own.
    """
    root = logging.getLogger()
    names = sorted(root.manager.loggerDict)
    return {ROOT: _name(root), **{name: _name(logging.getLogger(name)) for name in names}}


def set_level(name: str, level: str | None) -> None:
    """Set the level of a logger; None has it inherit again, and the root go back to where it started."""
    inherited = START_LEVEL if name == ROOT else logging.NOTSET
    logger = logging.getLogger(None if name == ROOT else name)
    logger.setLevel(inherited if level is None else _LEVELS[level])


def _name(logger: logging.Logger) -> str:
    effective = logger.getEffectiveLevel()
    return next((name for name, number in _LEVELS.items() if effective <= number), "FATAL")
