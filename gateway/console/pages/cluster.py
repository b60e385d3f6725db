"""The gateways or brokers of the cluster, what each leads, and how leaders changed."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from kio.schema.broker_heartbeat.v0.request import BrokerHeartbeatRequest

from gateway.admin.gateways import remote
from gateway.admin.gateways.messages import Gateways, GatewaysRequest
from gateway.admin.remote.cluster import Cluster
from gateway.admin.request import ControlError
from gateway.admin.status.messages import ClusterStatus, Status, StatusRequest
from gateway.admin.status.remote import cluster_status
from gateway.console.asking.connections import Cache, leaders_of
from gateway.console.page import Answer, Change, Look, Page, Section, View, Visit
from gateway.console.pages.cluster_moves import drain, move
from gateway.console.pages.cluster_settings import change, settings

KEPT_S: Final = 3.0
MOST_CHANGES: Final = 30
"""Changes of leaders that the page lists, the newest ones."""
MOST_PARTITIONS: Final = 50
"""Partitions in trouble that the page lists; it counts the others."""

_statuses: Final[Cache[ClusterStatus]] = Cache(KEPT_S)


class GatewayFacts(NamedTuple):
    """The status and the list of gateways from the gateway behind --metrics, or the reason why they are missing."""

    status: Status | None = None
    gateways: Gateways | None = None
    trouble: str | None = None


def cluster_page(visit: Visit) -> Answer:
    """Show the gateways or brokers."""
    with visit.cluster() as cluster:
        status = _statuses.get(visit.security, cluster.addresses, lambda: cluster_status(cluster))
        listed = _listed(cluster)
        leaders = leaders_of(cluster)
    changes = visit.console.sampler.leader_changes
    changes.see(time.time_ns() // 1_000_000, leaders)
    facts = _facts(visit)
    gateways = facts.gateways or listed
    return View(
        "cluster.html",
        {
            "status": status,
            "brokers": {broker.node_id: broker for broker in status.brokers},
            "gateways": gateways,
            "facts": facts,
            "is_alone": len(gateways.gateways) == 1,
            "can_drain": len(gateways.gateways) > 1 and _knows_drains(status),
            "offline": status.offline[:MOST_PARTITIONS],
            "under_replicated": status.under_replicated[:MOST_PARTITIONS],
            "changes": changes.summaries(leaders, MOST_CHANGES),
            "since_ms": changes.since_ms,
        },
    )


def _listed(cluster: Cluster) -> Gateways:
    return remote.gateways(cluster, GatewaysRequest())


def _knows_drains(status: ClusterStatus) -> bool:
    """Return whether some gateway of the cluster serves the request that drains; brokers of Apache Kafka don't."""
    return any(BrokerHeartbeatRequest.__api_key__ in broker.apis for broker in status.brokers)


def _facts(visit: Visit) -> GatewayFacts:
    if not visit.has_metrics:
        return GatewayFacts()
    try:
        status = visit.ask_gateway(StatusRequest())
    except ControlError as error:
        return GatewayFacts(trouble=str(error))
    if status.bucket is None:
        return GatewayFacts(status)
    try:
        return GatewayFacts(status, visit.ask_gateway(GatewaysRequest()))
    except ControlError as error:
        return GatewayFacts(status, trouble=str(error))


PAGE: Final = Page(
    title="Cluster",
    path="/cluster",
    section=Section.GATEWAYS,
    key="c",
    places=(
        Look("/cluster", cluster_page, waits_for="the state of the brokers"),
        Look("/cluster/settings", settings, waits_for="the broker's settings"),
        Change("/cluster/settings", change),
        Change("/cluster/move", move),
        Change("/cluster/drain", drain),
    ),
)
