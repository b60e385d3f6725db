"""Makes the fixtures of a release: `python -m tests.upgrade.make_fixture --release NAME [--tree DIRECTORY]`.

The gateway of the source tree (by default this one) writes everything in `writing` twice: once it is then
stopped, once killed. Each data directory becomes `fixtures/NAME-stopped.tar.gz` or `-killed.tar.gz`, with a
manifest beside it.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.support.gateway_process import REPOSITORY, free_port, module_of
from tests.upgrade.manifest import Manifest
from tests.upgrade.writing import MAKING, Writing

FIXTURES = Path(__file__).parent / "fixtures"
LOGINS = "sasl.enabled.mechanisms"
PASSED_OVER = {"control.sock", ".lock"}


def main() -> None:
    """Make both fixtures of a release."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", required=True, help="name of the release")
    parser.add_argument("--tree", type=Path, default=REPOSITORY, help="source tree of the release")
    arguments = parser.parse_args()
    FIXTURES.mkdir(exist_ok=True)
    for ended in ("stopped", "killed"):
        with tempfile.TemporaryDirectory() as temporary:
            data_dir = Path(temporary) / "data"
            manifest = write(arguments.tree, data_dir, arguments.release, ended)
            name = f"{arguments.release}-{ended}"
            archive = pack(data_dir)
            (FIXTURES / f"{name}.tar.gz").write_bytes(archive)
            manifest.write(FIXTURES / f"{name}.json")
            print(f"{name}: {len(archive)} bytes, {sum(map(len, manifest.records.values()))} records")


def write(
    tree: Path,
    data_dir: Path,
    release: str,
    ended: str,
    *,
    page: Path | None = None,
    python: Path = Path(sys.executable),
) -> Manifest:
    """Run the tree's gateway on `data_dir`, write everything, and end the gateway.

    `page` is the release's page of settings, where the tree has none.
    """
    bootstrap, logins = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    command = [str(python), "-m", module_of(tree), "serve", "--listen", bootstrap]
    command += ["--data-dir", str(data_dir)]
    settings = known_settings(page or tree / "docs" / "configuration.md")
    if LOGINS in settings:
        command += ["--listen", f"SASL_PLAINTEXT://{logins}"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    process = subprocess.Popen(
        command,
        cwd=tree,
        env={"PYTHONPATH": os.pathsep.join((str(tree / "src"), str(tree)))},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("seqgate ready"), line
        manifest = Writing(bootstrap, logins, release, ended).everything()
        process.send_signal(signal.SIGTERM if ended == "stopped" else signal.SIGKILL)
        assert process.wait(30) == (0 if ended == "stopped" else -signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    return manifest


def known_settings(page: Path) -> dict[str, str]:
    """Return the settings of MAKING that a release's page of settings has."""
    text = page.read_text()
    return {name: value for name, value in MAKING.items() if f"`{name}`" in text}


def pack(data_dir: Path) -> bytes:
    """Return the directory as an archive without owner and time."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=9, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(data_dir.rglob("*")):
            if path.name in PASSED_OVER or not (path.is_file() or path.is_dir()):
                continue
            member = archive.gettarinfo(path, str(path.relative_to(data_dir)))
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = int(member.mtime)
            member.mode = 0o755 if path.is_dir() else 0o644
            if path.is_file():
                with path.open("rb") as content:
                    archive.addfile(member, content)
            else:
                archive.addfile(member)
    return packed.getvalue()


if __name__ == "__main__":
    main()
