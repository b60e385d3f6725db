"""The projects in `examples/testing`: tests in other languages against a broker that fails on purpose.

`make peers` prepares each: its packages are fetched and compiled once, which takes a minute for Rust, whose
client contains librdkafka.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "examples" / "testing"
CACHE = REPOSITORY / ".cache" / "testing-examples"
LIMIT_S = 300.0
PREPARE_LIMIT_S = 1800.0
"""Time for the compiler of librdkafka on a busy machine; on a quiet one it takes a minute."""
BUILT = frozenset({"target", "node_modules"})
"""The folders that a build in the project itself leaves."""
MORE_PLACES = ("/usr/local/go/bin", str(Path.home() / ".cargo" / "bin"))
"""Where the installers of Go and Rust put their programs."""


@dataclass(frozen=True)
class Example:
    """A project: the program that builds it, what prepares it, what runs its tests, and what its output says
    of a test that passed.
    """

    name: str
    client: str
    program: str
    package: str
    """Debian's package of the program."""
    prepare: Sequence[str]
    test: Sequence[str]
    passed: str
    """A regular expression for one test that passed."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The project's folder."""
        return FOLDER / self.name

    @property
    def stamp(self) -> Path:
        """The file that says which state of the project is prepared."""
        return CACHE / f"{self.name}.prepared"

    def digest(self) -> str:
        """Return a digest of all files of the project."""
        files = sorted(
            path
            for path in self.folder.rglob("*")
            if path.is_file() and BUILT.isdisjoint(path.relative_to(self.folder).parts)
        )
        named = [str(path.relative_to(self.folder)).encode() + b"\0" + path.read_bytes() for path in files]
        return sha256(b"\0".join(named)).hexdigest()

    def copy_to(self, place: Path) -> Path:
        """Copy the project, so that its build leaves nothing in the sources; return the copy."""
        return Path(shutil.copytree(self.folder, place / self.name, ignore=shutil.ignore_patterns(*BUILT)))

    def surroundings(self) -> dict[str, str]:
        """Return the environment of its commands: `seqgate` is this checkout's."""
        places = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath), *MORE_PLACES]
        return {
            **os.environ,
            **self.environment,
            "PATH": os.pathsep.join(places),
            "PYTHONPATH": str(REPOSITORY / "src"),
        }

    def run(
        self, command: Sequence[str], place: Path, limit_s: float = LIMIT_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a copy of the project; the output has both streams. Raises FileNotFoundError
        without the program.
        """
        environment = self.surroundings()
        program = shutil.which(command[0], path=environment["PATH"])
        if program is None:
            raise FileNotFoundError(f"{command[0]} is not installed")
        return subprocess.run(
            [program, *command[1:]],
            cwd=place,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit_s,
            check=False,
        )

    def count_passed(self, output: str) -> int:
        """Return how many tests passed, by the output of the test command."""
        return len(re.findall(self.passed, output, re.MULTILINE))


EXAMPLES = (
    Example(
        "java",
        "Kafka's own client, JUnit",
        "mvn",
        "maven",
        # A test that does not exist: Maven fetches what runs tests, too, and no broker is needed yet.
        ("mvn", "-B", "-q", "test", "-Dtest=OrderSenderTest#none", "-Dsurefire.failIfNoSpecifiedTests=false"),
        ("mvn", "-B", "test", "-Dsurefire.reportFormat=plain", "-Dsurefire.useFile=false"),
        r"^\[INFO\] orders\.OrderSenderTest\.\w+ -- Time elapsed: [\d.]+ s$",
        {"MAVEN_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
    ),
    Example(
        "go",
        "franz-go",
        "go",
        "golang-go",
        ("go", "test", "-run", "^$", "."),
        ("go", "test", "-count=1", "-v", "."),
        r"^--- PASS: ",
    ),
    Example(
        "rust",
        "rdkafka",
        "cargo",
        "cargo",
        ("cargo", "test", "--locked", "--no-run"),
        ("cargo", "test", "--locked"),
        r"^test \w+ \.\.\. ok$",
        {"CARGO_TARGET_DIR": str(CACHE / "rust-target")},
    ),
    Example(
        "node",
        "KafkaJS",
        "npm",
        "npm",
        ("npm", "ci", "--prefer-offline", "--no-audit", "--no-fund"),
        ("node", "--test"),
        r"^ok \d+ - ",
    ),
)
