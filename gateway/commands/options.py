"""Options that several commands take, and how a command ends with a sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

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


def configured(config_file: Path | None, data_dir: Path | None) -> tuple[Config, Path]:
    """The settings as the gateway sees them, and its data directory; ends the command when one is wrong."""
    overrides = [] if data_dir is None else [f"log.dirs={data_dir}"]
    try:
        config = load_config(config_file, os.environ, overrides)
    except ConfigError as error:
        raise stop(str(error)) from None
    return config, Path(config.str("log.dirs"))


def stop(sentence: str, code: int = 1) -> typer.Exit:
    """An exit with a sentence on stderr."""
    print(f"seqgate: {sentence}", file=sys.stderr)
    return typer.Exit(code)


@contextmanager
def asking(config_file: Path | None, data_dir: Path | None) -> Iterator[Path]:
    """The data directory of the running gateway to ask; an error ends the command with its sentence."""
    from gateway.control.errors import ControlError, NotRunning

    _, directory = configured(config_file, data_dir)
    try:
        yield directory
    except NotRunning as error:
        raise stop(f"{error}; start it, or name its data directory with --data-dir") from None
    except ControlError as error:
        raise stop(str(error)) from None
