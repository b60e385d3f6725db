"""`seqgate configs`: the configurations of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from seqgate.gateway.admin.commands import Commands, Output, argument, asks, flag
from seqgate.gateway.admin.completion import configured_names
from seqgate.gateway.admin.options import OpenedCluster, cluster, name_values
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import Block, Column, counted, shown, table

app = Commands("""Show and change the configurations of topics, brokers and groups while the cluster runs.

The commands speak the Kafka protocol with the cluster at --bootstrap: \
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
        "CONFIG", "Show only these configurations. [default: those that somebody has set]", default=None
    ),
    everything: bool = flag("--all", "Also those that have their defaults."),
) -> Output:
    """Show configurations of a topic, broker or group.

    \b
    For example:
      seqgate configs get topic orders
      seqgate configs get topic orders retention.ms cleanup.policy
      seqgate configs get broker 1 --all
      seqgate configs get broker default
    """  # noqa: D301 - \b keeps the lines of the list apart
    with opened as reached:
        from seqgate.gateway.admin.configs import remote  # noqa: PLC0415 - slow to import

        resource = remote.existing(reached, kind, name)
        listing = remote.get(reached, resource, names or [], everything=everything)
    return Output(listing, _listing_text(listing))


@app.command("set")
@asks(cluster)
def set_configs(
    opened: OpenedCluster,
    kind: ConfigKind,
    name: Name,
    settings: list[str] = argument("CONFIG=VALUE", "The configurations to set, with their values."),
) -> Output:
    """Set configurations of a topic, broker or group: all of them, or none.

    \b
    For example:
      seqgate configs set topic orders retention.ms=86400000 segment.bytes=104857600
      seqgate configs set broker 1 log.retention.ms=86400000
      seqgate configs set broker default log.retention.ms=86400000
      seqgate configs set client-metrics all metrics=* interval.ms=60000
    """  # noqa: D301 - \b keeps the lines of the list apart
    return _change(opened, kind, name, name_values(settings, "configs set"), [])


@app.command("unset")
@asks(cluster)
def unset_configs(
    opened: OpenedCluster,
    kind: ConfigKind,
    name: Name,
    names: list[str] = argument("CONFIG", "The configurations to set back to their defaults."),
) -> Output:
    """Give configurations of a topic, broker or group their defaults again: all of them, or none."""
    return _change(opened, kind, name, {}, names)


def _change(
    opened: OpenedCluster, kind: str, name: str, settings: dict[str, str], unset: list[str]
) -> Output:
    with opened as reached:
        from seqgate.gateway.admin.configs import remote  # noqa: PLC0415 - slow to import

        resource = remote.existing(reached, kind, name)
        remote.check_known(reached, resource, [*settings, *unset])
        refusal = remote.change_remote(reached, resource, settings, unset)
        if refusal is not None:
            raise ControlError(f"{kind} {name}: {refusal}")
    of = f"{kind} {shown(name)}"
    text = [f"{of}: {config}={shown(value)}" for config, value in settings.items()]
    text += [f"{of}: {config} has its default again" for config in unset]
    return Output(ChangedConfigs(kind, name, settings, unset), text)


def _listing_text(listing: ConfigListing) -> Iterator[Block]:
    if listing.configs:
        yield table(ConfigRow, listing.configs, "name text origin note")
    else:
        yield f"Nothing is set on {listing.kind} {shown(listing.name)}."
    if listing.left_out:
        yield f"{counted(listing.left_out, 'configuration')} with their defaults; --all shows them."


# The JSON output of `seqgate configs … --json`.


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
        return "(secret)" if self.is_sensitive else self.value or ""

    @property
    def origin(self) -> Annotated[str, Column("from")]:
        """The source of the value in lower-case words, such as `dynamic topic` for DYNAMIC_TOPIC_CONFIG."""
        return self.source.removesuffix("_CONFIG").replace("_", " ").lower()

    @property
    def note(self) -> Annotated[str, Column("")]:
        """The remark on a configuration that can't be set."""
        return "read-only" if self.is_read_only else ""


class ConfigListing(msgspec.Struct, frozen=True):
    """The configurations of a topic, broker or group; `left_out` counts those that have their defaults."""

    kind: str
    name: str
    configs: list[ConfigRow]
    left_out: int


class ChangedConfigs(msgspec.Struct, frozen=True):
    """The configurations of a topic, broker or group that a command has set and unset."""

    kind: str
    name: str
    set: dict[str, str]
    unset: list[str]
