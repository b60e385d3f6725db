"""The levels of this process's loggers, under Kafka's names. A level lasts until the process ends."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

ROOT: Final = "root"
TRACE: Final = 5
_LEVELS: Final[Mapping[str, int]] = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


_start_level = logging.INFO


def set_start_level(level: str) -> None:
    """Set the level of `root`, to which it also returns when its own level is deleted."""
    global _start_level  # noqa: PLW0603 - loggers are global to the process, too
    _start_level = _LEVELS[level]
    logging.getLogger().setLevel(_start_level)


def levels() -> dict[str, str]:
    """Return the level in effect of every logger by its name; all loggers inherit from `root`.

    Packages are loggers too: a level of `gateway.server` applies to all its modules without a level of their own.
    """
    root = logging.getLogger()
    names = sorted(root.manager.loggerDict)
    return {ROOT: _name(root), **{name: _name(logging.getLogger(name)) for name in names}}


def set_level(name: str, level: str | None) -> None:
    """Set the level of a logger. With None the logger inherits again, and `root` returns to its level at the start."""
    inherited = _start_level if name == ROOT else logging.NOTSET
    logger = logging.getLogger(None if name == ROOT else name)
    logger.setLevel(inherited if level is None else _LEVELS[level])


def _name(logger: logging.Logger) -> str:
    effective = logger.getEffectiveLevel()
    return next((name for name, number in _LEVELS.items() if effective <= number), "FATAL")
