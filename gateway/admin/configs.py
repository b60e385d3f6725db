"""`seqgate configs`: the configurations of topics, brokers, groups and client-metrics subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec

from seqgate.gateway.admin.commands import Commands, Output, argument, asks, flag
from seqgate.gateway.admin.completion import configured_names
from seqgate.gateway.admin.options import OpenedCluster, cluster, name_values_or_exit_2
from seqgate.gateway.admin.request import ControlError, nearest_hint
from seqgate.gateway.admin.tables import Block, Column, counted, shown, table

if TYPE_CHECKING:
    from seqgate.gateway.admin.remote.cluster import Cluster

app = Commands("""Show and change configurations of topics, brokers, groups and client-metrics subscriptions.

The cluster runs meanwhile. The commands speak the Kafka protocol with the cluster at --bootstrap: \
a Seqgate gateway on any machine, or Apache Kafka.
`seqgate help configuration` describes each configuration of Seqgate.
""")

ConfigKind = Annotated[
    Literal["topic", "broker", "group", "client-metrics"],
    argument("KIND", "topic, broker, group or client-metrics."),
]
Name = Annotated[
    str,
    argument(
        "NAME",
        "The topic, the broker's node id, the group, or a subscription of client metrics; `broker default` "
        "stands for all brokers.",
        autocompletion=configured_names,
    ),
]


@app.command("get")
@asks(cluster)
def get(
    opened: OpenedCluster,
    kind: ConfigKind,
    name: Name,
    names: list[str] | None = argument(
        "CONFIG", "Show only these configurations. [default: those that are set there]", default=None
    ),
    everything: bool = flag("--all", "Also those that are inherited from the broker or have defaults."),
) -> Output:
    """Show configurations of a topic, broker, group or client-metrics subscription.

    A configuration of all brokers counts as set on each broker.

    \b
    For example:
      seqgate configs get topic orders
      seqgate configs get topic orders retention.ms cleanup.policy
      seqgate configs get broker 1 --all
      seqgate configs get broker default
    """  # noqa: D301 - \b keeps the lines of the list apart
    with opened as reached:
        resource = existing(reached, kind, name)
        listing = find_configs(reached, resource, names or [], everything=everything)
    return Output(listing, _listing_text(listing))


@app.command("set")
@asks(cluster)
def set_configs(
    opened: OpenedCluster,
    kind: ConfigKind,
    name: Name,
    settings: list[str] = argument("CONFIG=VALUE", "The configurations to set, with their values."),
) -> Output:
    """Set configurations of a topic, broker, group or client-metrics subscription: all of them, or none.

    \b
    For example:
      seqgate configs set topic orders retention.ms=86400000 segment.bytes=104857600
      seqgate configs set broker 1 log.retention.ms=86400000
      seqgate configs set broker default log.retention.ms=86400000
      seqgate configs set client-metrics all metrics=* interval.ms=60000
    """  # noqa: D301 - \b keeps the lines of the list apart
    return _change(opened, kind, name, name_values_or_exit_2(settings, "configs set"), [])


@app.command("unset")
@asks(cluster)
def unset_configs(
    opened: OpenedCluster,
    kind: ConfigKind,
    name: Name,
    names: list[str] = argument("CONFIG", "The configurations to remove."),
) -> Output:
    """Remove configurations that are set on a topic, broker, group or client-metrics subscription: all of
    them, or none.

    What counts then is the value of the broker or of all brokers, or else the default.
    """
    return _change(opened, kind, name, {}, names)


def _change(
    opened: OpenedCluster, kind: str, name: str, settings: dict[str, str], unset: list[str]
) -> Output:
    with opened as reached:
        resource = existing(reached, kind, name)
        secret = check_known(reached, resource, [*settings, *unset])
        refusal = change_remote(reached, resource, settings, unset)
        if refusal is not None:
            raise ControlError(f"{kind} {name}: {refusal}")
    of = f"{kind} {shown(name)}"
    told = {config: None if config in secret else value for config, value in settings.items()}
    text = [f"{of}: {config}={_HIDDEN if value is None else shown(value)}" for config, value in told.items()]
    text += [f"{of}: {config} is no longer set" for config in unset]
    return Output(ChangedConfigs(kind, name, told, unset), text)


def _listing_text(listing: ConfigListing) -> Iterator[Block]:
    if listing.configs:
        yield table(ConfigRow, listing.configs, "name text origin note")
    else:
        yield f"Nothing is set on {listing.kind} {shown(listing.name)}."
    if listing.left_out:
        yield f"{counted(listing.left_out, 'configuration')} not set there; --all shows them."


# The JSON output of `seqgate configs … --json`.

_HIDDEN: Final = "(secret)"


class ConfigRow(msgspec.Struct, frozen=True):
    """One configuration. `value` is None where the cluster keeps it secret, or where nothing is set. `source`
    is Kafka's word for where the value comes from, such as `DYNAMIC_TOPIC_CONFIG` or `DEFAULT_CONFIG`.
    """

    name: Annotated[str, Column("configuration")]
    value: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool

    @property
    def text(self) -> Annotated[str, Column("value")]:
        """The value for people."""
        return _HIDDEN if self.is_sensitive else self.value or ""

    @property
    def origin(self) -> Annotated[str, Column("from")]:
        """The source of the value in lower-case words, such as `dynamic topic` for DYNAMIC_TOPIC_CONFIG."""
        return self.source.removesuffix("_CONFIG").replace("_", " ").lower()

    @property
    def note(self) -> Annotated[str, Column("")]:
        """The remark on a configuration that can't be set."""
        return "read-only" if self.is_read_only else ""


class ConfigListing(msgspec.Struct, frozen=True):
    """The configurations of a resource; `left_out` counts those that are not set there: a topic or group
    inherits them from the broker, or they have their defaults.
    """

    kind: str
    name: str
    configs: list[ConfigRow]
    left_out: int


class ChangedConfigs(msgspec.Struct, frozen=True):
    """The configurations of a resource that a command has set and unset; the value of a secret one is
    None.
    """

    kind: str
    name: str
    set: dict[str, str | None]
    unset: list[str]


# Over the Kafka protocol: asks a cluster about configurations, and changes them. Raises ControlError.

_SET, _DELETE = 0, 1
"""The operations on a configuration: org.apache.kafka.clients.admin.AlterConfigOp.OpType."""
ALL_BROKERS: Final = "default"
"""The name of the configurations of all brokers."""
_ALL: Final = ""
"""The name of the resource that stands for all brokers."""
_TYPES: Final = {"topic": 2, "broker": 4, "client-metrics": 16, "group": 32}
"""The numbers of the kinds: org.apache.kafka.common.config.ConfigResource.Type."""
KINDS: Final = tuple(_TYPES)
_SOURCES: Final = (
    "UNKNOWN",
    "DYNAMIC_TOPIC_CONFIG",
    "DYNAMIC_BROKER_CONFIG",
    "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC_BROKER_CONFIG",
    "DEFAULT_CONFIG",
    "DYNAMIC_BROKER_LOGGER_CONFIG",
    "DYNAMIC_CLIENT_METRICS_CONFIG",
    "DYNAMIC_GROUP_CONFIG",
)
"""The sources of values by their numbers: ConfigSource of DescribeConfigsResponse."""
_SET_BY_SOMEBODY: Final = frozenset(_SOURCES) - {"UNKNOWN", "DEFAULT_CONFIG"}
_INHERITED: Final = frozenset(
    {"STATIC_BROKER_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG"}
)
"""The sources of values that a topic or group takes from its broker, in Kafka's words."""


class Resource(NamedTuple):
    """A topic, broker or group that has configurations, or a subscription of client metrics (KIP-714)."""

    kind: str
    name: str

    @property
    def is_all_brokers(self) -> bool:
        """Whether the configurations are the defaults of all brokers, which a broker's own override."""
        return self == ("broker", ALL_BROKERS)


def existing(cluster: Cluster, kind: str, name: str | None) -> Resource:
    """Return the resource that a command names. Raises ControlError if there is no such topic or broker;
    groups and subscriptions begin with their configurations.
    """
    if kind == "topic" and name is not None:
        cluster.existing_topics([name])
    if kind != "broker":
        if not name:
            raise ControlError(f"name the {kind}")
        return Resource(kind, name)
    brokers = cluster.broker_ids()
    if name is None:
        if len(brokers) > 1:
            raise ControlError(f"name one of the brokers {', '.join(map(str, brokers))}")
        return Resource(kind, str(brokers[0]))
    if name != ALL_BROKERS and name not in map(str, brokers):
        raise ControlError(
            f"there is no broker {name}; the cluster has {', '.join(map(str, brokers))}, and "
            f"{ALL_BROKERS} stands for all"
        )
    return Resource(kind, name)


def find_configs(
    cluster: Cluster, resource: Resource, names: Sequence[str], *, everything: bool
) -> ConfigListing:
    """Return the configurations with these names; without, those that are set, or all with `everything`."""
    rows = _all_rows(cluster, resource)
    if rows is None:
        raise ControlError(unreadable(*resource))
    if names:
        if resource.is_all_brokers:
            check_known(cluster, resource, names)
            return ConfigListing(*resource, [row for row in rows if row.name in names], 0)
        by_name = {row.name: row for row in rows}
        for name in names:
            if name not in by_name:
                raise _unknown(resource, name, by_name)
        return ConfigListing(*resource, [by_name[name] for name in names], 0)
    listed = rows if everything else [row for row in rows if _is_set(resource.kind, row.source)]
    return ConfigListing(*resource, listed, len(rows) - len(listed))


def _is_set(kind: str, source: str) -> bool:
    return source in _SET_BY_SOMEBODY and (kind == "broker" or source not in _INHERITED)


def _all_rows(cluster: Cluster, resource: Resource) -> list[ConfigRow] | None:
    if not resource.is_all_brokers:
        return described(cluster, resource.kind, [resource.name]).get(resource.name)
    from seqgate.gateway.admin.remote.cluster import check  # noqa: PLC0415 - slow to import

    (found,) = cluster.ask_any(describing(cluster, "broker", [_ALL])).results
    check(found)
    return _rows(found.configs)


def unreadable(kind: str, name: str) -> str:
    """Return the sentence for a resource that `described` leaves out."""
    on = "it" if kind in {"topic", "group"} else "the cluster"
    return f"the configurations of {kind} {name} can't be read; DescribeConfigs on {on} may be missing"


def describing(cluster: Cluster, kind: str, names: Sequence[str], keys: Sequence[str] | None = None) -> Any:
    """Return the question for all configurations of topics, groups or brokers, or for those of `keys`."""
    wanted = None if keys is None else tuple(keys)
    rows = [
        {"resource_type": _TYPES[kind], "resource_name": name, "configuration_keys": wanted} for name in names
    ]
    return cluster.request(32, 4, resources=rows)


def described(
    cluster: Cluster, kind: str, names: Sequence[str], keys: Sequence[str] | None = None
) -> dict[str, list[ConfigRow]]:
    """Return the configurations of topics or groups, or of one broker, by name, each sorted by name: all, or
    those of `keys`. Leave out those that the cluster does not describe to this user.
    """
    asked = describing(cluster, kind, names, keys)
    answer = cluster.ask(cluster.broker(int(names[0])), asked) if kind == "broker" else cluster.ask_any(asked)
    return {str(each.resource_name): _rows(each.configs) for each in answer.results if not each.error_code}


def _rows(entries: Iterable[Any]) -> list[ConfigRow]:
    rows = [
        ConfigRow(
            name=entry.name,
            value=entry.value,
            source=_SOURCES[int(entry.config_source)],
            is_read_only=entry.read_only,
            is_sensitive=entry.is_sensitive,
        )
        for entry in entries
    ]
    return sorted(rows, key=lambda row: row.name)


def change_remote(
    cluster: Cluster,
    resource: Resource,
    settings: Mapping[str, str],
    unset: Sequence[str],
    *,
    validate_only: bool = False,
) -> str | None:
    """Set and unset configurations, all of them or none, or only ask whether the cluster would; return the
    reason if it refuses.
    """
    from seqgate.gateway.admin.remote.cluster import refusal  # noqa: PLC0415 - slow to import

    place, name = cluster.any_broker, resource.name
    if resource.is_all_brokers:
        name = _ALL
    elif resource.kind == "broker":
        place = cluster.broker(int(name))
    wanted = [{"name": each, "config_operation": _SET, "value": value} for each, value in settings.items()]
    wanted += [{"name": each, "config_operation": _DELETE, "value": None} for each in unset]
    row = {"resource_type": _TYPES[resource.kind], "resource_name": name, "configs": wanted}
    asked = cluster.request(44, 1, resources=[row], validate_only=validate_only)
    (outcome,) = cluster.ask(place, asked, is_change=True).responses
    return refusal(outcome.error_code, outcome.error_message)


def check_known(cluster: Cluster, resource: Resource, names: Sequence[str]) -> set[str]:
    """Return those of the names whose values are secret. Raises ControlError for the first that is no
    configuration of the resource, unless the cluster does not list its configurations.
    """
    from seqgate.gateway.config.table import is_secret, without_listener  # noqa: PLC0415 - slow to import

    # The defaults of all brokers are listed only where they are set.
    asked = Resource("broker", str(cluster.first_broker_id())) if resource.is_all_brokers else resource
    known = {row.name: row.is_sensitive for row in _all_rows(cluster, asked) or ()}
    # A setting of one listener is listed only where somebody has set it: the setting of all tells about it.
    listed = {name: name if name in known else without_listener(name) for name in names}
    for name in names:
        if known and listed[name] not in known:
            raise _unknown(resource, name, known)
    # Where the cluster lists nothing, the settings of this release tell.
    return {name for name in names if known.get(listed[name], is_secret(name))}


def _unknown(resource: Resource, name: str, known: Mapping[str, Any]) -> ControlError:
    return ControlError(
        f"{resource.kind} {resource.name} has no configuration {name}{nearest_hint(name, known)}"
    )
