"""The differences that random sequences may show: each has its reason in `known_differences` and
docs/differences.md.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import NamedTuple

from tests.compat.differential.compare import Difference


class Accepted(NamedTuple):
    """An allowed difference: patterns of its family, its path and its pairs of values."""

    family: str
    path: str
    only_where: Callable[[object, object], bool] = lambda *_: True


ACCEPTED: tuple[Accepted, ...] = (
    # Seqgate's default of flush.messages differs, because acks=all waits for the disk. Kafka sets
    # min.insync.replicas for the whole cluster (KIP-966).
    Accepted("admin", "*.configs.flush.messages.*"),
    Accepted("admin", "*.configs.min.insync.replicas.*"),
    # Kafka stores a later batch before a refused first one that is sent again; Seqgate holds it back
    # (seqgate.seq_validator.refused).
    Accepted("produce", "*.behind one sent again.*", lambda kafka, gateway: (kafka, gateway) == (0, 19)),
    Accepted(
        "produce", "*.in order with one sent again", lambda kafka, gateway: (kafka, gateway) == (False, True)
    ),
)


def is_accepted(family: str, difference: Difference) -> bool:
    """Return whether a difference is one of the known ones."""
    return any(
        fnmatchcase(family, one.family)
        and fnmatchcase(difference.path, one.path)
        and one.only_where(difference.kafka, difference.gateway)
        for one in ACCEPTED
    )
