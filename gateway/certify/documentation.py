"""The page of all fault scripts, written from the scripts."""

from __future__ import annotations

from typing import Final

from seqgate.gateway.certify.scripts import SCRIPTS

_INTRODUCTION: Final = """\
# The scripts of `seqgate certify`

Look up here what each script does to an application, and what a correct producer does then. `seqgate certify --list` prints the same;
`seqgate certify --command "..." --scripts NAME` runs one of them. [certify.md](certify.md) says how an application is judged.

In each script no record may be lost, doubled or reordered. In those with a * a correct producer may also report a failure, and end with
another exit code than 0.

Written by `python -m seqgate.gateway.documentation docs` (`make docs`) from the scripts themselves; a test compares the two.

| script | what happens | a correct producer |
| --- | --- | --- |
"""


def scripts_page() -> str:
    """Return the page of all scripts, as Markdown."""
    rows = [
        f"| `{script.name}`{'*' if script.may_give_up else ''} | {script.happens} | {script.correct} |\n"
        for script in SCRIPTS
    ]
    return _INTRODUCTION + "".join(rows)
