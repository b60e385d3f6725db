"""Makes the links of a client: to one gateway, or to all gateways of a cluster."""

from __future__ import annotations

from random import Random

from tests.simulation.clients.cluster_link import ClusterLink
from tests.simulation.clients.connection import Link
from tests.simulation.clients.surroundings import Surroundings


def link_of(surroundings: Surroundings, client_id: str, random: Random) -> Link:
    """Return the link with which a client reaches what serves."""
    kind = Link if surroundings.cluster is None else ClusterLink
    return kind(surroundings, client_id, random)
