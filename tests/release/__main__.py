"""Makes a release: `python -m tests.release [--rehearsal] [--out FOLDER]`, or `make release`.

It checks the versions and the changelog, builds the sdist and the wheel of the last commit twice, compares
the builds, writes the bill of materials, and installs and uses the wheel on every Python that is here.
docs/contributing/releasing.md says when to run it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.release.bill_of_materials import write_bill
from tests.release.building import Built, build, build_compiled, build_tools, export, git, last_change
from tests.release.commands import PIP, run
from tests.release.installed import EXTRAS, install
from tests.release.pythons import pythons
from tests.release.smoke import smoke
from tests.release.version import NotReady, check_version

REPOSITORY: Final = Path(__file__).resolve().parents[2]
CACHE: Final = REPOSITORY / ".cache" / "installed"


def main() -> int:
    """Make the files of a release; return the exit status."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "dist", help="the folder for the files")
    parser.add_argument(
        "--rehearsal",
        action="store_true",
        help="accept changes without a commit, and a changelog without a day",
    )
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="seqgate-release-") as folder:
            release(arguments.out.resolve(), Path(folder), is_rehearsal=arguments.rehearsal)
    except (NotReady, AssertionError, subprocess.CalledProcessError) as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    return 0


def release(out: Path, folder: Path, *, is_rehearsal: bool) -> None:
    """Write the files of a release into `out`. Raises NotReady, and AssertionError with the output of what
    failed.
    """
    if not is_rehearsal and git(REPOSITORY, "status", "--porcelain"):
        raise NotReady("the working tree has changes: commit them, or give --rehearsal")
    sources = export(REPOSITORY, folder / "sources", None if is_rehearsal else "HEAD")
    version = check_version(sources, is_rehearsal=is_rehearsal)
    print(f"version    {version}, in every file that names it")
    built = build_twice(sources, folder)
    run(*PIP[:1], "-m", "twine", "check", "--strict", *built, cwd=folder)
    print("metadata   accepted by twine")
    bill = folder / f"seqgate-{version}.cdx.json"
    compiled = []
    for number, (name, python) in enumerate(pythons().items()):
        (folder / f"compiled-{name}").mkdir()
        wheel = build_compiled(built.sdist, python, folder / f"compiled-{name}")
        compiled.append(wheel)
        for core, wheel_of_it in (("compiled", wheel), ("interpreted", built.wheel)):
            installed = install(python, wheel_of_it, folder / f"{name}-{core}", CACHE)
            used = folder / f"used-{name}-{core}"
            used.mkdir()
            smoke(installed, used, f"{version} ({core} core)")
        print(
            f"Python     {name}: both wheels installed, served a client, stopped, and still had every record"
        )
        if number == 0:
            parts = write_bill(installed, sources, bill)["components"]
    print(f"materials  {len(parts)} packages with the extras {', '.join(EXTRAS)}")
    _deliver([*built, *compiled, bill], out)


def build_twice(sources: Path, folder: Path) -> Built:
    """Build in two places with two time zones and two file modes, and return one of the builds. Raises
    AssertionError unless they are equal.
    """
    epoch = last_change(REPOSITORY)
    tools = build_tools(sources, folder / "tools")
    first = build(sources, tools, folder / "first", epoch)
    copy = Path(shutil.copytree(sources, folder / "elsewhere" / "copy"))
    mask, zone = os.umask(0o077), os.environ.get("TZ")
    os.environ["TZ"] = "Pacific/Chatham"
    try:
        second = build(copy, tools, folder / "second", epoch)
    finally:
        os.umask(mask)
        if zone is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = zone
    for one, other in zip(first, second, strict=True):
        assert one.name == other.name
        assert one.read_bytes() == other.read_bytes(), f"two builds of {one.name} differ"
        print(f"built      {one.name}, twice the same bytes")
    return first


def _deliver(files: list[Path], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    sums = []
    for file in files:
        shutil.copy2(file, out)
        sums.append(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n")
    (out / "SHA256SUMS").write_text("".join(sums))
    print(f"written    {', '.join(file.name for file in files)} and SHA256SUMS, in {out}")


if __name__ == "__main__":
    sys.exit(main())
