"""An image that is built and run without a container engine, by bubblewrap: the same instructions, users and
read-only files.

The system of this machine stands in for the base image, with a Python of the base image's version at
/usr/local, where the official images have theirs. Instructions that change this system (packages, users) are
left out; the tests read these. The network is the machine's, so that tests reach the ports, and run beside
each other on ports of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from tests.release.pythons import pythons
from tests.support.dockerfile import Stage, read_stages
from tests.support.missing import missing

USER_ID: Final = 10001
LIMIT_S: Final = 300.0
_OF_THE_SYSTEM: Final = (
    *("bin", "lib", "lib32", "lib64", "libx32", "sbin", "usr"),
    *("etc/alternatives", "etc/group", "etc/ld.so.cache", "etc/localtime", "etc/nsswitch.conf", "etc/passwd"),
    *("etc/pip.conf", "etc/resolv.conf", "etc/ssl"),
)
_CHANGES_THE_SYSTEM: Final = ("apt-get", "groupadd", "useradd")


def bubblewrap() -> str:
    """Return the path of bubblewrap; skip the test where it is missing, and fail in CI."""
    found = shutil.which("bwrap")
    if found is None:
        missing("bwrap is not installed (Debian: apt-get install bubblewrap; `make peers` does it)")
    return found


@dataclass(frozen=True)
class Image:
    """A built image: the files that it adds to its base, and its last stage."""

    added: Path
    """What lies at /opt in the image."""
    stage: Stage
    python: Path
    """The Python that stands in for that of the base image."""

    @property
    def added_bytes(self) -> int:
        """The size of the files that the image adds to its base."""
        return sum(path.lstat().st_size for path in self.added.rglob("*") if not path.is_dir())


def build_image(repository: Path, folder: Path) -> Image:
    """Run the build stage of the Dockerfile and return the image. Raises AssertionError with the output of
    what failed.
    """
    arguments, (build, final) = read_stages(repository / "Dockerfile")
    python = _python(arguments["PYTHON"])
    added, work = folder / "opt", folder / "work"
    added.mkdir(parents=True)
    place = build.value("WORKDIR")
    for copied in build.values("COPY"):
        *sources, target = copied.split()
        for source in sources:
            _copy(repository, source, work / target / (source if target == "./" else ""))
    for command in build.values("RUN"):
        if command.startswith(_CHANGES_THE_SYSTEM):
            continue
        words = [bubblewrap(), *_system(python), "--bind", str(added), "/opt", "--bind", str(work), place]
        words += ["--chdir", place, "/bin/sh", "-c", command]
        environment = _environment(python, {"PATH": "/usr/local/bin:/usr/bin:/bin"})
        done = subprocess.run(
            words,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
    shutil.rmtree(work)
    return Image(added, final, python)


@dataclass
class Container:
    """A process of the image: as the image's user, as process 1, with nothing writable but /tmp and its
    volume.
    """

    image: Image
    data: Path
    """What lies at the image's volume."""
    words: Sequence[str] = ()
    """What follows the entry point; without it the image's CMD."""
    environment: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)
    """Addresses by host name, as an orchestrator's DNS gives them."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """Further read-only files, by their place in the container."""
    shared: Mapping[str, Path] = field(default_factory=dict)
    """Further volumes, by their place in the container."""

    _process: subprocess.Popen[str] | None = None
    _first: int = 0

    def __enter__(self) -> Self:
        for volume in (self.data, *self.shared.values()):
            volume.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.geteuid() == 0:
                os.chown(volume, USER_ID, USER_ID)
        stage = self.image.stage
        words = [*stage.words("ENTRYPOINT"), *(self.words or stage.words("CMD"))]
        reading, writing = os.pipe()
        with (self.data.parent / f"{self.data.name}.stderr").open("a") as log:
            self._process = subprocess.Popen(
                [*self._around(["--info-fd", str(writing)]), *words],
                env=self._variables(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                pass_fds=[writing],
            )
        os.close(writing)
        with os.fdopen(reading) as told:
            self._first = json.load(told)["child-pid"]
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            os.kill(self._first, signal.SIGKILL)
        self._process.communicate()

    @property
    def log(self) -> str:
        """What the process has written to its standard error."""
        return (self.data.parent / f"{self.data.name}.stderr").read_text()

    def execute(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run another program in the container, as `docker exec` does, and return its end."""
        return subprocess.run(
            [*self._around(), *words],
            env=self._variables(),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def await_healthy(self, check: Sequence[str] | None = None) -> None:
        """Run the health check, the image's or another one, until it succeeds. Raises AssertionError."""
        assert self._process is not None
        deadline = time.monotonic() + LIMIT_S
        while self._process.poll() is None and time.monotonic() < deadline:
            if self.execute(*(check or self.image.stage.health_check)).returncode == 0:
                return
            # The pause between checks, as an engine makes: a process without a file to wait on.
            time.sleep(0.2)
        raise AssertionError(f"the container is not healthy: exit code {self._process.poll()}\n{self.log}")

    def await_end(self, limit_s: float = LIMIT_S) -> int:
        """Wait until the process ends by itself, and return the exit code."""
        assert self._process is not None
        return self._process.wait(limit_s)

    def stop(self, limit_s: float = LIMIT_S) -> int:
        """Send SIGTERM to process 1, as an engine does, and return the exit code."""
        assert self._process is not None
        os.kill(self._first, signal.SIGTERM)
        return self.await_end(limit_s)

    def _around(self, further: Sequence[str] = ()) -> list[str]:
        """Return the command that runs another one in the container."""
        stage = self.image.stage
        words = [
            bubblewrap(),
            *further,
            *_system(self.image.python),
            "--ro-bind",
            str(self.image.added),
            "/opt",
        ]
        words += ["--bind", str(self.data), stage.value("VOLUME"), "--chdir", stage.value("WORKDIR")]
        words += [word for place, volume in self.shared.items() for word in ("--bind", str(volume), place)]
        names = self.data.parent / f"{self.data.name}.hosts"
        names.write_text(
            "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in self.hosts.items())
        )
        for place, file in {**self.files, "/etc/hosts": names}.items():
            words += ["--dir", str(Path(place).parent), "--ro-bind", str(file), place]
        words += [
            "--remount-ro",
            "/",
            "--unshare-pid",
            "--unshare-ipc",
            "--unshare-uts",
            "--as-pid-1",
            "--die-with-parent",
        ]
        if os.geteuid():
            return [
                *words,
                "--unshare-user",
                "--uid",
                str(USER_ID),
                "--gid",
                str(USER_ID),
                "--cap-drop",
                "ALL",
            ]
        ids = f"--reuid={USER_ID} --regid={USER_ID} --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs"
        return [*words, shutil.which("setpriv") or "setpriv", *ids.split()]

    def _variables(self) -> dict[str, str]:
        return _environment(self.image.python, {**self.image.stage.environment, **self.environment})


@contextmanager
def running(*containers: Container) -> Iterator[None]:
    """Run containers, one after the other; the end kills what still runs."""
    if not containers:
        yield
        return
    with containers[0], running(*containers[1:]):
        yield


def _python(version: str) -> Path:
    """Return the Python of the base image's version; skip the test where it is missing, and fail in CI."""
    found = pythons().get(version)
    if found is None:
        missing(f"Python {version}, which the image is built on, is not here")
    return found


def _copy(repository: Path, source: str, target: Path) -> None:
    """Copy what .dockerignore lets in."""
    assert f"!{source}" in (repository / ".dockerignore").read_text().splitlines(), source
    target.parent.mkdir(parents=True, exist_ok=True)
    if (repository / source).is_dir():
        shutil.copytree(repository / source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    else:
        shutil.copy2(repository / source, target)


def _system(python: Path) -> list[str]:
    """Return bubblewrap's words for a system as in the base image: read-only, and without this machine's
    other files.
    """
    words = [
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--perms",
        "1777",
        "--tmpfs",
        "/tmp",
        "--dir",
        "/etc",
        "--dir",
        "/var",
        "--dir",
        "/var/lib",
    ]
    for name in _OF_THE_SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            words += ["--ro-bind", str(path), str(path)]
    prefix = python.parent.parent
    return [*words, "--ro-bind", str(prefix), "/usr/local"] if prefix != Path("/usr") else words


def _environment(python: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a container. Its loader knows the libraries at /usr/local, and its pip the
    index of this machine.
    """
    index = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_CERT"))}
    return {**index, "LD_LIBRARY_PATH": "/usr/local/lib", "LANG": "C.UTF-8", **variables}
