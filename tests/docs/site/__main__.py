"""Builds the site of the docs without network, and checks it: `python -m tests.docs.site`.

The exit status is 1 when a page has a warning, or when the built site has a dead link or loads anything from
another host.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx_build

from tests.docs.site.built import Site
from tests.docs.site.staging import BadLink, stage
from tests.support.markdown import REPOSITORY

SETTINGS = REPOSITORY / "docs" / "site"
PROCESSES = 2


def build(output: Path, work: Path) -> int:
    """Build the site into `output`, with the copied pages and Sphinx's cache in `work`; return the exit
    status.

    Both folders are emptied first. Warnings are errors.
    """
    for folder in (output, work):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    source = work / "pages"
    source.mkdir()
    try:
        stage(REPOSITORY, source)
    except (BadLink, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    options = ["-q", "-E", "-W", "--keep-going", "-j", str(PROCESSES), "-c", str(SETTINGS)]
    status = sphinx_build([*options, "-b", "html", "-d", str(work / "cache"), str(source), str(output)])
    if status != 0:
        return status
    site = Site(output)
    for fault in (faults := site.faults()):
        print(fault, file=sys.stderr)
    if not faults:
        print(f"{len(site.pages)} pages, {site.links} links; begin with {output / 'index.html'}")
    return 1 if faults else 0


def main() -> int:
    """Build the site where the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.docs.site", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("artifacts/site"), help="the folder of the site")
    parser.add_argument(
        "--work", type=Path, default=Path("artifacts/site-work"), help="a folder for copies and the cache"
    )
    options = parser.parse_args()
    return build(options.output, options.work)


if __name__ == "__main__":
    sys.exit(main())
