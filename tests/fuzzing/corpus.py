"""The kept inputs of a target: a text file with one input per line, in base64; lines after `#` say why it is
kept.
"""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

DIRECTORY = Path(__file__).parent / "corpora"


def path_of(target: str) -> Path:
    """Return the path of a target's kept inputs."""
    return DIRECTORY / f"{target}.txt"


def kept(target: str) -> Iterator[bytes]:
    """Return all kept inputs of a target."""
    path = path_of(target)
    if path.exists():
        for line in path.read_text().splitlines():
            if line and not line.startswith("#"):
                yield base64.b64decode(line, validate=True)


def line_of(data: bytes) -> str:
    """Return an input as its line."""
    return base64.b64encode(data).decode()


def keep(target: str, inputs: Iterable[bytes], reason: str) -> None:
    """Add inputs with the reason for which they are kept."""
    known = set(kept(target))
    lines = [line_of(data) for data in inputs if data not in known]
    if lines:
        with path_of(target).open("a") as file:
            file.write(
                "\n".join(
                    [*textwrap.wrap(reason, 100, initial_indent="# ", subsequent_indent="# "), *lines, ""]
                )
            )
