"""Options that several commands take, and how a command ends with an error."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from gateway.admin.client import Client
from gateway.admin.request import ControlError, NotRunning
from gateway.config import Config, ConfigError, load_config

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", help="The gateway's data directory (log.dirs).", show_default="./data, or as configured"
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="The gateway's settings file, when it has one.",
        exists=True,
        dir_okay=False,
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(rf"(\d+)\s*({'|'.join(_UNITS_MS)})", re.ASCII)


def stop(sentence: str, code: int = 1) -> typer.Exit:
    """Print a sentence on stderr and return the exit to raise."""
    print(f"seqgate: {sentence}", file=sys.stderr)
    return typer.Exit(code)


@contextmanager
def asking(
    config_file: Path | None,
    data_dir: Path | None,
    overrides: Sequence[str] = (),
    *,
    asks_gateway: bool = True,
) -> Iterator[Client]:
    """Yield a client of the gateway that the options name; an error ends the command with its sentence.

    `overrides` are settings as NAME=VALUE. `asks_gateway` is as in Client.
    """
    config = _configured(config_file, data_dir, overrides)
    try:
        yield Client(Path(config.str("log.dirs")), config, asks_gateway)
    except NotRunning as error:
        raise stop(f"{error}; start it, or name its data directory with --data-dir") from None
    except ControlError as error:
        raise stop(str(error)) from None


def _configured(config_file: Path | None, data_dir: Path | None, overrides: Sequence[str]) -> Config:
    """Load the settings as the gateway does; a wrong setting ends the command with its sentence."""
    directory = () if data_dir is None else (f"log.dirs={data_dir}",)
    try:
        return load_config(config_file, os.environ, (*directory, *overrides))
    except ConfigError as error:
        raise stop(str(error)) from None


def duration_ms(text: str) -> int:
    """Return the milliseconds of `500ms`, `30s`, `5m`, `2h` or `1d`. Raises ValueError with a sentence."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text} is no length of time; write 500ms, 30s, 5m, 2h or 1d")
    return int(match[1]) * _UNITS_MS[match[2]]
