"""The software bill of materials of a release: what is installed with the wheel and its extras, in
CycloneDX's JSON.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.release.commands import PIP, run
from tests.release.installed import Installed


def write_bill(installed: Installed, sources: Path, file: Path) -> dict[str, Any]:
    """Write the bill of an installed wheel, valid by CycloneDX's schema, and return its document.

    The same packages give the same bytes. Raises AssertionError.
    """
    run(
        *(PIP[0], "-m", "cyclonedx_py", "environment"),
        *("--pyproject", sources / "pyproject.toml", "--mc-type", "application"),
        *("--output-reproducible", "--spec-version", "1.6", "--output-format", "JSON"),
        *("--output-file", file, installed.python),
        cwd=sources,
    )
    document: dict[str, Any] = json.loads(file.read_text())
    assert document["bomFormat"] == "CycloneDX"
    assert document["metadata"]["component"]["name"] == "seqgate"
    return document
