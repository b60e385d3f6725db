"""The programs with six well-known clients, in their default settings and with idempotence the other way."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Final

import confluent_kafka

from tests.support.kafka_tools import java_command
from tests.support.setup_peers import CACHE, KAFKA_VERSION

PROGRAMS: Final = Path(__file__).with_name("clients")
BUILD_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True)
class Program:
    """One client in one mode: a column of the table. `words` returns the words that start it, without the
    mode.
    """

    client: str
    mode: str
    is_idempotent: bool
    version: Callable[[], str]
    words: Callable[[], list[str]]

    @property
    def name(self) -> str:
        """The name of the column."""
        return f"{self.client} {self.mode}"

    def command(self) -> str:
        """Return the command for `seqgate certify`; builds the program if that is needed."""
        return shlex.join([*self.words(), self.mode])


def _python(client: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, str(PROGRAMS / client / "send.py")]


def _java() -> list[str]:
    return java_command(str(PROGRAMS / "java" / "Send.java"))


def _go() -> list[str]:
    source = PROGRAMS / "franz-go"
    program = _place("franz-go", *(source / name for name in ("main.go", "go.sum"))) / "send"
    if not program.is_file():
        _build(["go", "build", "-o", str(program), "."], source)
    return [str(program)]


def _node() -> list[str]:
    source = PROGRAMS / "kafkajs"
    place = _place("kafkajs", source / "package-lock.json")
    if not (place / "node_modules" / "kafkajs").is_dir():
        place.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, place / name)
        _build(["npm", "ci", "--no-audit", "--no-fund"], place)
    return ["env", f"NODE_PATH={place / 'node_modules'}", "node", str(source / "send.js")]


def _place(client: str, *sources: Path) -> Path:
    """Return the folder of what is built from these files."""
    digest = sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    return CACHE / "certify" / f"{client}-{digest}"


def _build(command: list[str], directory: Path) -> None:
    """Run a build. Raises AssertionError with its output."""
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{shlex.join(command)}: {done.stdout}{done.stderr}"


def _franz_go_version() -> str:
    (version,) = re.findall(
        r"^require github.com/twmb/franz-go v(\S+)",
        (PROGRAMS / "franz-go" / "go.mod").read_text(),
        re.MULTILINE,
    )
    return str(version)


def _kafkajs_version() -> str:
    package = json.loads((PROGRAMS / "kafkajs" / "package.json").read_text())
    return str(package["dependencies"]["kafkajs"])


def _both(
    client: str, other: str, version: Callable[[], str], words: Callable[[], list[str]]
) -> tuple[Program, Program]:
    """Return a client in its default settings and in its `other` mode."""
    return (
        Program(client, "default", other == "plain", version, words),
        Program(client, other, other == "idempotent", version, words),
    )


COLUMNS: Final = (
    *_both("java", "plain", lambda: KAFKA_VERSION, _java),
    *_both("librdkafka", "idempotent", lambda: confluent_kafka.libversion()[0], _python("librdkafka")),
    *_both("kafka-python", "plain", lambda: metadata.version("kafka-python"), _python("kafka-python")),
    *_both("aiokafka", "idempotent", lambda: metadata.version("aiokafka"), _python("aiokafka")),
    *_both("franz-go", "plain", _franz_go_version, _go),
    *_both("kafkajs", "idempotent", _kafkajs_version, _node),
)
"""The columns of the table: "plain" is without idempotence."""
