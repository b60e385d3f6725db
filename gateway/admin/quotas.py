"""`seqgate quotas`: the client quotas of a cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from seqgate.gateway.admin.commands import Commands, OptionsOf, Output, argument, asks, flag, option, stop
from seqgate.gateway.admin.options import OpenedCluster, cluster, name_values_or_exit_2
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import Block, Column, Table, number, shown

if TYPE_CHECKING:
    from seqgate.gateway.admin.remote.cluster import Cluster

# The JSON output of `seqgate quotas … --json`.


class QuotaRow(msgspec.Struct, frozen=True):
    """An entity and its quotas, by Kafka's names. A name of null is the default of its type."""

    entity: dict[str, str | None]
    quotas: dict[str, float]


class QuotaListing(msgspec.Struct, frozen=True):
    """The entities that have quotas."""

    entities: list[QuotaRow]


class ChangedQuotas(msgspec.Struct, frozen=True):
    """The quotas of an entity that a command has set and removed."""

    entity: dict[str, str | None]
    set: dict[str, float]
    unset: list[str]


app = Commands("""List, set and remove client quotas: how much users, client ids and addresses may do.

The commands speak the Kafka protocol with the cluster at --bootstrap: \
a Seqgate gateway on any machine, or Apache Kafka.
`seqgate help quotas` describes the quotas.
""")

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

User = Annotated[str | None, option("--user", "NAME", "The user of this name.")]
DefaultUser = Annotated[bool, flag("--default-user", "Every user without a quota of its own.")]
ClientId = Annotated[str | None, option("--client-id", "ID", "This client id.")]
DefaultClientId = Annotated[bool, flag("--default-client-id", "Every client id without a quota of its own.")]
Ip = Annotated[str | None, option("--ip", "ADDRESS", "This address.")]
DefaultIp = Annotated[bool, flag("--default-ip", "Every address without a quota of its own.")]


def _entity(
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
) -> dict[str, str | None]:
    """Return the entity that the options name; options that exclude each other are a usage error."""
    named = ((user, default_user), (client_id, default_client_id), (ip, default_ip))
    entity: dict[str, str | None] = {}
    for kind, (name, is_default) in zip((USER, CLIENT_ID, IP), named, strict=True):
        if name is not None and is_default:
            raise stop(f"name either --{kind} or --default-{kind}", code=2)
        if name is not None or is_default:
            entity[kind] = name
    if IP in entity and len(entity) > 1:
        raise stop("an address has quotas of its own; name no user or client id with it", code=2)
    return entity


NamedEntity = Annotated[dict[str, str | None], OptionsOf(_entity)]


@app.command("list")
@asks(cluster)
def list_quotas(opened: OpenedCluster, entity: NamedEntity) -> Output:
    """List quotas: all of them, or those of the users, client ids and addresses that are named.

    \b
    For example:
      seqgate quotas list
      seqgate quotas list --user ann
    """  # noqa: D301 - \b keeps the lines of the list apart
    with opened as reached:
        listing = QuotaListing(find_quotas(reached, entity))
    return Output(listing, [_listing(listing, entity)])


@app.command("set")
@asks(cluster)
def set_quotas(
    opened: OpenedCluster,
    *,
    settings: list[str] = argument(
        "QUOTA=VALUE",
        "producer_byte_rate, consumer_byte_rate, request_percentage or controller_mutation_rate of users and "
        "client ids, connection_creation_rate of addresses.",
    ),
    entity: NamedEntity,
) -> Output:
    """Set quotas of a user, a client id, both together, or an address: all of them, or none.

    \b
    For example:
      seqgate quotas set producer_byte_rate=1048576 consumer_byte_rate=2097152 --user ann
      seqgate quotas set request_percentage=50 --user ann --default-client-id
      seqgate quotas set connection_creation_rate=20 --default-ip
    """  # noqa: D301 - \b keeps the lines of the list apart
    return _change(opened, entity, _numbers(name_values_or_exit_2(settings, "quotas set")), [])


@app.command("unset")
@asks(cluster)
def unset_quotas(
    opened: OpenedCluster,
    *,
    names: list[str] = argument("QUOTA", "The quotas to remove."),
    entity: NamedEntity,
) -> Output:
    """Remove quotas of a user, a client id, both together, or an address."""
    return _change(opened, entity, {}, list(dict.fromkeys(names)))


def _change(
    opened: OpenedCluster, entity: Mapping[str, str | None], values: dict[str, float], unset: list[str]
) -> Output:
    if not entity:
        raise stop("name whose quotas to change: --user, --client-id, --ip or one of their defaults", code=2)
    with opened as reached:
        reason = change_quotas(reached, entity, values, unset)
        if reason is not None:
            raise ControlError(f"{_shown(entity)}: {reason}")
    text = [f"{_shown(entity)}: {shown(key)}={value:.15g}" for key, value in values.items()]
    text += [f"{_shown(entity)}: no {shown(key)}" for key in unset]
    return Output(ChangedQuotas(dict(entity), values, unset), text)


def _listing(listing: QuotaListing, wanted: Mapping[str, str | None]) -> Block:
    if not listing.entities:
        return "There are no quotas." if not wanted else f"There are no quotas of {_shown(wanted)}."
    return Table(
        (Column("of"), Column("quota"), Column("value", number)),
        [
            (_shown(row.entity), key, f"{value:,.15g}")
            for row in listing.entities
            for key, value in row.quotas.items()
        ],
    )


def _numbers(texts: Mapping[str, str]) -> dict[str, float]:
    from seqgate.gateway.config.setting import parse_decimal  # noqa: PLC0415 - slow to import

    values = {}
    for key, text in texts.items():
        try:
            values[key] = parse_decimal(text.strip())
        except ValueError:
            raise stop(f"quotas set: {key}={text}: the value must be a number", code=2) from None
        if not math.isfinite(values[key]):
            raise stop(f"quotas set: {key}={text}: the value must be finite", code=2)
    return values


def _shown(entity: Mapping[str, str | None]) -> str:
    words = {USER: "user", CLIENT_ID: "client id", IP: "address"}
    return ", ".join(
        f"default {words.get(kind, kind)}" if name is None else f"{words.get(kind, kind)} {shown(name)}"
        for kind, name in entity.items()
    )


# Over the Kafka protocol: asks a cluster about client quotas, and changes them. Raises ControlError.


def find_quotas(cluster: Cluster, wanted: Mapping[str, str | None]) -> list[QuotaRow]:
    """Return the entities with these types and names, and perhaps others, sorted; without any, all."""
    exact, default = 0, 1
    components = [
        {"entity_type": kind, "match_type": default if name is None else exact, "match": name}
        for kind, name in wanted.items()
    ]
    answer = cluster.ask(cluster.reached, cluster.request(48, 1, components=components, strict=False))
    rows = [
        QuotaRow(
            {part.entity_type: part.entity_name for part in sorted(entry.entity, key=_type)},
            {quota.key: float(quota.value) for quota in sorted(entry.values, key=lambda quota: quota.key)},
        )
        for entry in answer.entries or ()
    ]
    return sorted(rows, key=lambda row: [(kind, name or "") for kind, name in row.entity.items()])


def _type(part: object) -> str:
    return str(getattr(part, "entity_type", ""))


def change_quotas(
    cluster: Cluster, entity: Mapping[str, str | None], settings: Mapping[str, float], unset: Sequence[str]
) -> str | None:
    """Set and remove quotas of an entity, all of them or none; return the reason if the cluster refuses."""
    from seqgate.gateway.admin.remote.cluster import refusal  # noqa: PLC0415 - slow to import

    ops = [{"key": key, "value": value, "remove": False} for key, value in settings.items()]
    ops += [{"key": key, "value": 0.0, "remove": True} for key in unset]
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    asked = cluster.request(49, 1, entries=[{"entity": parts, "ops": ops}], validate_only=False)
    (result,) = cluster.ask(cluster.reached, asked, is_change=True).entries
    return refusal(result.error_code, result.error_message)
