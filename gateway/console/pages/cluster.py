"""The gateways or brokers of the cluster, what each leads, and how leaders changed."""

from __future__ import annotations

import time
from typing import Final

from kio.schema.broker_heartbeat.v0.request import BrokerHeartbeatRequest

from seqgate.gateway.admin import configs
from seqgate.gateway.admin.cluster.gateways import (
    DrainRequest,
    GatewaysRequest,
    MoveRequest,
    UndrainRequest,
    drain_remote,
    gateways_remote,
    move_remote,
    planned_drain,
    undrain_remote,
)
from seqgate.gateway.admin.configs import ALL_BROKERS, ConfigRow, Resource
from seqgate.gateway.admin.remote.cluster import Cluster
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.status import StatusRequest
from seqgate.gateway.admin.tables import counted
from seqgate.gateway.config.table import is_secret
from seqgate.gateway.console.answer import (
    Confirmation,
    PageAnswer,
    Redirect,
    View,
    address,
    page_of,
    with_units,
)
from seqgate.gateway.console.asking.connections import leaders_of
from seqgate.gateway.console.page import Get, Page, PageGroup, Post, Visit, above_form, status_of

MOST_CHANGES: Final = 30
"""Changes of leaders that the page lists, the newest ones."""
MOST_PARTITIONS: Final = 50
"""Partitions in trouble that the page lists; it counts the others."""


def cluster_page(visit: Visit) -> PageAnswer:
    """Show what the brokers tell, and what the gateway behind --metrics knows of itself and its bucket."""
    with visit.partial() as cluster:
        status = status_of(cluster)
        listed = gateways_remote(cluster, GatewaysRequest())
        leaders = leaders_of(cluster)
    changes = visit.console.sampler.leader_changes
    changes.see(time.time_ns() // 1_000_000, leaders)
    own, trouble = visit.told(StatusRequest())
    gateways = listed
    if own is not None and own.bucket is not None:
        told, trouble = visit.told(GatewaysRequest())
        gateways = told or listed
    return View(
        "cluster.html",
        {
            "status": status,
            "brokers": {broker.node_id: broker for broker in status.brokers},
            "gateways": gateways,
            "own": own,
            "trouble": trouble,
            "is_alone": len(gateways.gateways) == 1,
            # Brokers of Apache Kafka don't serve the request that drains.
            "can_drain": len(gateways.gateways) > 1
            and any(BrokerHeartbeatRequest.__api_key__ in broker.apis for broker in status.brokers),
            "offline": status.offline[:MOST_PARTITIONS],
            "under_replicated": status.under_replicated[:MOST_PARTITIONS],
            "changes": changes.summaries(leaders, MOST_CHANGES),
            "since_ms": changes.since_ms,
            "figures": visit.gateway_figures(),
        },
    )


# Makes another gateway the leader of a partition, drains gateways, and takes drains back.

LONGEST_MS: Final = 15_000
"""Time for which the console waits for a move or a drain, which goes on without the console."""
_LARGEST: Final = (1 << 31) - 1


def move(visit: Visit) -> PageAnswer:
    """Make a gateway the leader of a partition after a confirmation. Raises ControlError."""
    topic = visit.text("topic").strip()
    partition = visit.optional_number("partition", 0, _LARGEST)
    node_id = visit.optional_number("node", 0, _LARGEST)
    if not topic or partition is None or node_id is None:
        raise ControlError("a move needs a topic, a partition and a node; fill all three")
    with visit.cluster() as cluster:
        found = leaders_of(cluster).get((topic, partition))
        if found is None:
            raise ControlError(f"there is no partition {topic}-{partition}")
        now = found.node_id
        if node_id == now:
            raise ControlError(f"node {node_id} leads {topic}-{partition} already; choose another node")
        if not visit.is_confirmed:
            return Confirmation(
                title=f"Move {topic}-{partition} to node {node_id}?",
                action="Move the partition",
                back="/cluster",
                sentences=(
                    "The leader hands the partition over; producers and consumers follow by themselves.",
                    "The partition prefers its new leader from now on.",
                ),
                changes=[
                    (
                        f"leader of {topic}-{partition}",
                        "nobody" if now < 0 else f"node {now}",
                        f"node {node_id}",
                    )
                ],
            )
        move_remote(cluster, MoveRequest(topic, partition, node_id, LONGEST_MS))
    return Redirect("/cluster", notice=f"Node {node_id} leads {topic}-{partition}.")


def drain(visit: Visit) -> PageAnswer:
    """Let a gateway hand over all partitions after a confirmation. Raises ControlError."""
    node_id = _drained_node(visit)
    with visit.cluster() as cluster:
        if not visit.is_confirmed:
            led = planned_drain(gateways_remote(cluster, GatewaysRequest()).gateways, node_id).leaders
            return Confirmation(
                title=f"Drain node {node_id}?",
                action="Drain the node",
                back="/cluster",
                sentences=(
                    (
                        f"Node {node_id} hands over what it leads ({counted(led, 'partition')}), and gets no "
                        "new partitions until it starts again or is undrained."
                    ),
                    "It goes on to serve clients, so that you can stop it without a pause for anyone.",
                    "Undrain takes this back, and so does a restart of the node.",
                ),
                changes=[(f"partitions that node {node_id} leads", f"{led:,}", "0")],
            )
        left = drain_remote(cluster, DrainRequest(node_id, LONGEST_MS)).leaders
    sentence = (
        f"still leads {counted(left, 'partition')}, and hands them over" if left else "leads nothing any more"
    )
    return Redirect("/cluster", notice=f"Node {node_id} {sentence}.")


def undrain(visit: Visit) -> PageAnswer:
    """Take back the drain of a gateway. Raises ControlError."""
    node_id = _drained_node(visit)
    with visit.cluster() as cluster:
        led = undrain_remote(cluster, UndrainRequest(node_id)).leaders
    return Redirect(
        "/cluster", notice=f"Node {node_id} takes part again, and leads {counted(led, 'partition')}."
    )


def _drained_node(visit: Visit) -> int:
    node_id = visit.number("node", -1, 0, _LARGEST)
    if node_id < 0:
        raise ControlError("the form names no node; open the page of the cluster again")
    return node_id


# The settings of a broker, or of all brokers: search, and change of those that need no restart.

_SOURCES: Final = {
    "DYNAMIC_BROKER_CONFIG": "set for this broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "set for all brokers",
    "DYNAMIC_BROKER_LOGGER_CONFIG": "set for this broker",
    "STATIC_BROKER_CONFIG": "set at the start",
    "DEFAULT_CONFIG": "default",
}
_DEFAULT_SOURCE: Final = "DEFAULT_CONFIG"
_OWN_SOURCES: Final = {True: "DYNAMIC_DEFAULT_BROKER_CONFIG", False: "DYNAMIC_BROKER_CONFIG"}
"""The source of values that the form can remove, for all brokers and for one."""


def settings(visit: Visit, problem: str | None = None) -> View:
    """Show the settings whose names or values contain the filter, those that somebody has set first."""
    wanted, only_changed = visit.text("filter").strip().lower(), visit.text("changed") == "yes"
    with visit.cluster() as cluster:
        resource = _resource(visit, cluster)
        brokers = cluster.broker_ids()
        has_ended = not resource.is_all_brokers and int(resource.name) not in cluster.brokers
        rows = [] if has_ended else configs.find_configs(cluster, resource, [], everything=True).configs
    matching = [row for row in rows if wanted in row.name.lower() or wanted in (row.value or "").lower()]
    changed = [row for row in matching if row.source != _DEFAULT_SOURCE]
    ordered = sorted(
        changed if only_changed else matching, key=lambda row: (row.source == _DEFAULT_SOURCE, row.name)
    )
    shown, paging = page_of(ordered, visit.number("page", 1, 1))
    name, value = (visit.form.get(field, [""])[-1] for field in ("name", "value"))
    values = {
        "node": resource.name,
        "is_all": resource.is_all_brokers,
        "has_ended": has_ended,
        "brokers": brokers,
        "default": ALL_BROKERS,
        "rows": shown,
        "paging": paging,
        "wanted": visit.text("filter"),
        "only_changed": only_changed,
        "changed": len(changed),
        "sources": _SOURCES,
        "own_source": _OWN_SOURCES[resource.is_all_brokers],
        "problem": problem,
        "given": {"name": name, "value": "" if is_secret(name.strip()) else value},
    }
    return View("cluster_settings.html", values, 200 if problem is None else 400)


def _resource(visit: Visit, cluster: Cluster) -> Resource:
    return configs.existing(cluster, "broker", visit.text("node") or str(cluster.first_broker_id()))


@above_form(settings, "Nothing is changed: ")
def change(visit: Visit) -> PageAnswer:
    """Set or remove a setting after a confirmation."""
    name, value = visit.text("name").strip(), visit.text("value")
    is_removed = visit.text("unset") == "yes"
    with visit.cluster() as cluster:
        resource = _resource(visit, cluster)
        if not name:
            raise ControlError("the name of the setting is empty; give a name")
        if configs.check_known(cluster, resource, [name]):
            raise ControlError(f"{name} is secret; set it with seqgate configs set, so that no page has it")
        now = _now(cluster, resource, name)
        back = address("/cluster/settings", node=resource.name, filter=visit.text("filter"))
        if not visit.is_confirmed:
            whom = "all brokers" if resource.is_all_brokers else f"broker {resource.name}"
            return Confirmation(
                title=f"{'Remove' if is_removed else 'Change'} {name} of {whom}?",
                action="Remove the setting" if is_removed else "Change the setting",
                back=back,
                sentences=("The change counts at once, without a restart.",),
                changes=[(name, now, "what counts without it" if is_removed else with_units(name, value))],
            )
        refused = configs.change_remote(
            cluster, resource, {} if is_removed else {name: value}, [name] if is_removed else []
        )
    if refused is not None:
        raise ControlError(refused)
    return Redirect(back, notice=f"{name} is {'removed' if is_removed else 'changed'}.")


def _now(cluster: Cluster, resource: Resource, name: str) -> str:
    """Return the present value in words."""
    rows = configs.find_configs(cluster, resource, [], everything=True).configs
    row: ConfigRow | None = next((row for row in rows if row.name == name), None)
    return "not set" if row is None or row.value is None else with_units(name, row.value)


PAGE: Final = Page(
    "Cluster",
    PageGroup.GATEWAYS,
    "c",
    Get("/cluster", cluster_page, waits_for="the state of the brokers"),
    Get("/cluster/settings", settings, waits_for="the broker's settings"),
    Post("/cluster/settings", change),
    Post("/cluster/move", move),
    Post("/cluster/drain", drain),
    Post("/cluster/undrain", undrain),
)
