"""DescribeDelegationToken of a client that has no credentials; kio can't decode the times in the other APIs'
refusals.
"""

from __future__ import annotations

from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario_for_each


@scenario_for_each(range(1, 4))
def describe_without_credentials(peer: Peer, version: int) -> None:
    for owners in (None, [], [{"principal_type": "User", "principal_name": "ann"}]):
        peer.call("describe_delegation_token", version, owners=owners)
