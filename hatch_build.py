"""Makes the links in `src/seqgate` for an editable installation from an sdist, which can't hold links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Links(BuildHookInterface):
    """The hook of every build of the wheel; a wheel to be installed as it is needs no links."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's interface
        """Make each link to a package that is missing."""
        if version != "editable":
            return
        placed = self.build_config.target_config["sources"]
        for folder, place in placed.items():
            link = Path(self.root, "src", place)
            if not link.exists() and Path(self.root, folder, "__init__.py").is_file():
                link.symlink_to(Path("..", "..", folder), target_is_directory=True)
