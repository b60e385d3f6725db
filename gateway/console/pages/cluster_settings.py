"""The settings of a broker, or of all brokers: search, and change of those that need no restart."""

from __future__ import annotations

from typing import Final

from gateway.admin.configs import remote
from gateway.admin.configs.command import ConfigRow
from gateway.admin.configs.remote import Resource
from gateway.admin.remote.cluster import ALL_BROKERS, Cluster
from gateway.admin.request import ControlError
from gateway.console.page import Answer, Confirmation, Redirect, View, Visit, page_of
from gateway.console.pages.links import link

_SOURCES: Final = {
    "DYNAMIC_BROKER_CONFIG": "set for this broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "set for all brokers",
    "DYNAMIC_BROKER_LOGGER_CONFIG": "set for this broker",
    "STATIC_BROKER_CONFIG": "set at the start",
    "DEFAULT_CONFIG": "default",
}
"""Kafka's words for where a value comes from, in plain words."""
_DEFAULT_SOURCE: Final = "DEFAULT_CONFIG"
_OWN_SOURCES: Final = {True: "DYNAMIC_DEFAULT_BROKER_CONFIG", False: "DYNAMIC_BROKER_CONFIG"}
"""The source of values that the form can remove, for all brokers and for one."""


def settings(visit: Visit) -> Answer:
    """Show the settings whose names or values contain the filter, those that somebody has set first."""
    return _view(visit, None)


def _view(visit: Visit, problem: str | None, status: int = 200) -> View:
    wanted = visit.text("filter").strip().lower()
    with visit.cluster() as cluster:
        resource = _resource(visit, cluster)
        rows = remote.get(cluster, resource, [], everything=True).configs
        brokers = cluster.broker_ids()
    matching = [row for row in rows if wanted in row.name.lower() or wanted in (row.value or "").lower()]
    ordered = sorted(matching, key=lambda row: (row.source == _DEFAULT_SOURCE, row.name))
    shown, paging = page_of(ordered, visit.number("page", 1, 1))
    values = {
        "node": resource.name,
        "is_all": resource.is_all_brokers,
        "brokers": brokers,
        "default": ALL_BROKERS,
        "rows": shown,
        "paging": paging,
        "wanted": visit.text("filter"),
        "all_settings": len(rows),
        "sources": _SOURCES,
        "own_source": _OWN_SOURCES[resource.is_all_brokers],
        "problem": problem,
        "given": {"name": visit.form.get("name", [""])[-1], "value": visit.form.get("value", [""])[-1]},
    }
    return View("cluster_settings.html", values, status)


def _resource(visit: Visit, cluster: Cluster) -> Resource:
    return remote.existing(cluster, "broker", visit.text("node") or str(cluster.broker_ids()[0]))


def change(visit: Visit) -> Answer:
    """Set or remove a setting after a confirmation; a refusal is shown above the list."""
    try:
        with visit.cluster() as cluster:
            return _changed(visit, cluster)
    except ControlError as error:
        return _view(visit, f"Nothing is changed: {error}", status=400)


def _changed(visit: Visit, cluster: Cluster) -> Answer:
    resource = _resource(visit, cluster)
    name, value = visit.text("name").strip(), visit.text("value")
    is_removed = visit.text("unset") == "yes"
    if not name:
        raise ControlError("the name of the setting is empty; give a name")
    remote.check_known(cluster, resource, [name])
    now = _now(cluster, resource, name)
    back = link("/cluster/settings", node=resource.name, filter=visit.text("filter"))
    if not visit.is_confirmed:
        whom = "all brokers" if resource.is_all_brokers else f"broker {resource.name}"
        return Confirmation(
            title=f"{'Remove' if is_removed else 'Change'} {name} of {whom}?",
            action="Remove the setting" if is_removed else "Change the setting",
            back=back,
            sentences=("The change counts at once, without a restart.",),
            changes=[(name, now, "what counts without it" if is_removed else value or "empty")],
        )
    refused = remote.change_remote(
        cluster, resource, {} if is_removed else {name: value}, [name] if is_removed else []
    )
    if refused is not None:
        raise ControlError(refused)
    return Redirect(back, notice=f"{name} is {'removed' if is_removed else 'changed'}.")


def _now(cluster: Cluster, resource: Resource, name: str) -> str:
    """Return the present value in words. Raises ControlError for a secret, which a page must not have."""
    rows = remote.get(cluster, resource, [], everything=True).configs
    row: ConfigRow | None = next((row for row in rows if row.name == name), None)
    if row is None:
        return "not set"
    if row.is_sensitive:
        raise ControlError(f"{name} is secret; set it with seqgate configs set, so that no page has it")
    return "not set" if row.value is None else row.value or "empty"
