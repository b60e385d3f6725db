"""The instructions of a Dockerfile, by stage, as its final image and its build would have them."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from dockerfile_parse import DockerfileParser


class Instruction(NamedTuple):
    """One instruction, such as RUN, and what follows it with the lines joined."""

    name: str
    value: str


@dataclass
class Stage:
    """One stage: its base, its name, and its instructions in order."""

    base: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def values(self, name: str) -> list[str]:
        """Return what follows each instruction of a name."""
        return [instruction.value for instruction in self.instructions if instruction.name == name]

    def value(self, name: str) -> str:
        """Return what follows the only instruction of a name."""
        (found,) = self.values(name)
        return found

    def words(self, name: str) -> list[str]:
        """Return the words of the only instruction of a name, which must be in the exec form: a JSON list."""
        found: list[str] = json.loads(self.value(name))
        return found

    @property
    def environment(self) -> dict[str, str]:
        """What the ENV instructions set."""
        pairs = (pair.partition("=") for value in self.values("ENV") for pair in value.split())
        return {name: value for name, _, value in pairs}

    @property
    def health_check(self) -> list[str]:
        """The words of the command of the HEALTHCHECK, in the exec form."""
        found: list[str] = json.loads(self.value("HEALTHCHECK").partition("CMD ")[2])
        return found


def read_stages(file: Path) -> tuple[dict[str, str], list[Stage]]:
    """Return the arguments with their defaults, and the stages of a Dockerfile."""
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    # The parser writes its file when it is changed; a copy in memory keeps it from the real one.
    for found in DockerfileParser(fileobj=io.BytesIO(file.read_bytes())).structure:
        name, value = found["instruction"], found["value"]
        if name == "COMMENT":
            continue
        if name == "ARG":
            argument, _, default = value.partition("=")
            arguments[argument] = default
        elif name == "FROM":
            base, _, stage = value.partition(" AS ")
            stages.append(Stage(_filled(base, arguments), stage))
        else:
            stages[-1].instructions.append(Instruction(name, value))
    return arguments, stages


def _filled(text: str, arguments: dict[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda match: arguments[match[1]], text)
