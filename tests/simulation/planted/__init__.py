"""Mistakes planted in the production code, to prove that the simulation and its checkers find them."""

from __future__ import annotations

from tests.simulation.planted import (
    clustering,
    collecting,
    compacting,
    coordinators,
    durability,
    evicting,
    naming,
    producers,
    reading,
    reading_elsewhere,
    recovering,
    sharing,
    shortening,
    taking_over,
    uploading,
)
from tests.simulation.planted.fault import FAULTS, SOUGHT, Fault

__all__ = [
    "FAULTS",
    "SOUGHT",
    "Fault",
    "clustering",
    "collecting",
    "compacting",
    "coordinators",
    "durability",
    "evicting",
    "naming",
    "producers",
    "reading",
    "reading_elsewhere",
    "recovering",
    "sharing",
    "shortening",
    "taking_over",
    "uploading",
]
