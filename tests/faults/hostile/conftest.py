"""The gateway that all attacks share."""

from __future__ import annotations

from tests.faults.hostile.scene import scene

__all__ = ["scene"]
