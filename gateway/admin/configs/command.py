"""`seqgate configs`: the configurations of topics, brokers and groups."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from seqgate.gateway.admin.completion import configured_names
from seqgate.gateway.admin.options import (
    AsJson,
    Bootstrap,
    CommandConfig,
    ConfigFile,
    DataDir,
    name_values,
    reaching,
)
from seqgate.gateway.admin.printing import Column, counted, print_json, print_lines, print_table, shown
from seqgate.gateway.admin.request import ControlError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

HELP = """Show and change the configurations of topics, brokers and groups while the cluster runs.

The commands speak the Kafka protocol with the cluster at --bootstrap: a Seqgate gateway on any machine, or Apache Kafka.
docs/configuration.md describes each configuration of Seqgate.
"""

Kind = Annotated[
    Literal["topic", "broker", "group"],
    typer.Argument(metavar="KIND", help="topic, broker or group.", show_default=False),
]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The topic, the broker's node id, or the group; `broker default` stands for all brokers.",
        autocompletion=configured_names,
        show_default=False,
    ),
]


@app.command("get")
def get(
    kind: Kind,
    name: Name,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CONFIG",
            help="Show only these configurations. [default: those that somebody has set]",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also those that have their defaults.")] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show configurations of a topic, broker or group.

    \b
    For example:
      seqgate configs get topic orders
      seqgate configs get topic orders retention.ms cleanup.policy
      seqgate configs get broker 1 --all
      seqgate configs get broker default
    """  # noqa: D301 - \b keeps the lines of the list apart
    with reaching(bootstrap, config_file, data_dir, command_config) as cluster:
        from seqgate.gateway.admin.configs import remote  # noqa: PLC0415 - slow to import

        listing = remote.get(
            cluster, remote.existing(cluster, kind, name), names or [], everything=everything
        )
    if as_json:
        print_json(listing)
    else:
        _print(listing)


@app.command("set")
def set_configs(
    kind: Kind,
    name: Name,
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="CONFIG=VALUE", help="The configurations to set, with their values.", show_default=False
        ),
    ],
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Set configurations of a topic, broker or group: all of them, or none.

    \b
    For example:
      seqgate configs set topic orders retention.ms=86400000 segment.bytes=104857600
      seqgate configs set broker 1 log.retention.ms=86400000
      seqgate configs set broker default log.retention.ms=86400000
    """  # noqa: D301 - \b keeps the lines of the list apart
    _change(
        kind,
        name,
        name_values(settings, "configs set"),
        [],
        bootstrap,
        command_config,
        data_dir,
        config_file,
        as_json=as_json,
    )


@app.command("unset")
def unset_configs(
    kind: Kind,
    name: Name,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="CONFIG", help="The configurations to set back to their defaults.", show_default=False
        ),
    ],
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Give configurations of a topic, broker or group their defaults again: all of them, or none."""
    _change(kind, name, {}, names, bootstrap, command_config, data_dir, config_file, as_json=as_json)


def _change(
    kind: str,
    name: str,
    settings: dict[str, str],
    unset: list[str],
    bootstrap: str | None,
    command_config: Path | None,
    data_dir: DataDir,
    config_file: ConfigFile,
    *,
    as_json: bool,
) -> None:
    with reaching(bootstrap, config_file, data_dir, command_config) as cluster:
        from seqgate.gateway.admin.configs import remote  # noqa: PLC0415 - slow to import

        resource = remote.existing(cluster, kind, name)
        remote.check_known(cluster, resource, [*settings, *unset])
        refusal = remote.change_remote(cluster, resource, settings, unset)
        if refusal is not None:
            raise ControlError(f"{kind} {name}: {refusal}")
    if as_json:
        print_json(ConfigChange(kind, name, settings, unset))
        return
    for config, value in settings.items():
        print_lines(f"{kind} {shown(name)}: {config}={shown(value)}")
    for config in unset:
        print_lines(f"{kind} {shown(name)}: {config} has its default again")


def _print(listing: ConfigListing) -> None:
    if not listing.configs:
        print_lines(f"Nothing is set on {listing.kind} {shown(listing.name)}.")
    else:
        _print_rows(listing)
    if listing.left_out:
        print_lines(f"{counted(listing.left_out, 'configuration')} with their defaults; --all shows them.")


def _print_rows(listing: ConfigListing) -> None:
    print_table(
        (Column("configuration"), Column("value"), Column("from"), Column("")),
        [
            (
                row.name,
                "(secret)" if row.is_sensitive else shown(row.value or ""),
                row.source.removesuffix("_CONFIG").replace("_", " ").lower(),
                "read-only" if row.is_read_only else "",
            )
            for row in listing.configs
        ],
    )


# The JSON output of `seqgate configs … --json`.


class ConfigRow(msgspec.Struct, frozen=True):
    """One configuration. `value` is None where the cluster keeps it secret, or where nothing is set.

    `source` is Kafka's word for where the value comes from, such as `DYNAMIC_TOPIC_CONFIG` or
    `DEFAULT_CONFIG`.
    """

    name: str
    value: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool


class ConfigListing(msgspec.Struct, frozen=True):
    """The configurations of a topic, broker or group; `left_out` counts those that have their defaults and
    are not listed.
    """

    kind: str
    name: str
    configs: list[ConfigRow]
    left_out: int


class ConfigChange(msgspec.Struct, frozen=True):
    """The configurations of a topic, broker or group that a command has set and unset."""

    kind: str
    name: str
    set: dict[str, str]
    unset: list[str]
