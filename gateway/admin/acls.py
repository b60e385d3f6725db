"""`seqgate acls`: the access control entries of a cluster.

The rows, the commands, the entries and filters that their options stand for, and the requests to the cluster.
Source: Kafka's AclCommand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from seqgate.gateway.admin.commands import Commands, OptionsOf, Output, asks, flag, option, stop
from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.options import Consented, OpenedCluster, parsed_or_exit_2
from seqgate.gateway.admin.options import cluster as any_cluster
from seqgate.gateway.admin.tables import Block, Column, counted, shown, table
from seqgate.gateway.security.acls.access import (
    CLUSTER_NAME,
    EVERYBODY,
    SUPPORTED,
    WILDCARD,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

if TYPE_CHECKING:
    from seqgate.gateway.admin.remote.cluster import Cluster

# The JSON output of `seqgate acls … --json`, in Kafka's words.


def _word(name: str) -> str:
    return name.lower().replace("_", " ")


class AclRow(msgspec.Struct, frozen=True):
    """One access control entry."""

    resource_type: Annotated[str, Column("resource", _word)]
    resource_name: Annotated[str, Column("name")]
    pattern_type: Annotated[str, Column("pattern", _word)]
    principal: Annotated[str, Column("principal")]
    host: Annotated[str, Column("host")]
    operation: Annotated[str, Column("operation")]
    permission: Annotated[str, Column("permission", _word)]


class AclOutcome(msgspec.Struct, frozen=True):
    """An entry that a command wanted to add or remove; `error` is the reason if the cluster refused it."""

    entry: AclRow
    error: str | None


def row_of(entry: AclEntry) -> AclRow:
    """Return the output row of an entry."""
    return AclRow(*(value.name if isinstance(value, Enum) else value for value in entry))


app = Commands("""List, add and remove access control entries: who may do what.

The commands speak the Kafka protocol with the cluster at --bootstrap: \
a Seqgate gateway on any machine, or Apache Kafka.
The options are those of kafka-acls. `seqgate help security` has the operation that
each request needs.
""")

Topics = Annotated[
    list[str] | None,
    option("--topic", "TOPIC", "A topic; * is every topic. May be repeated.", autocompletion=topic_names),
]
Groups = Annotated[list[str] | None, option("--group", "GROUP", "A group; * is every group.")]
OfCluster = Annotated[bool, flag("--cluster", "The cluster itself.")]
TransactionalIds = Annotated[list[str] | None, option("--transactional-id", "ID", "A transactional id.")]
Tokens = Annotated[list[str] | None, option("--delegation-token", "ID", "A delegation token.")]
Users = Annotated[
    list[str] | None, option("--user", "PRINCIPAL", "A user, such as User:alice, for whom tokens are made.")
]
Pattern = Annotated[
    Literal["literal", "prefixed"],
    option(
        "--resource-pattern-type",
        "literal|prefixed",
        "Whether names stand for themselves or for all names that begin so.",
        show_default=True,
    ),
]
FoundPattern = Annotated[
    Literal["literal", "prefixed", "any", "match"],
    option(
        "--resource-pattern-type",
        "literal|prefixed|any|match",
        "Find names of these patterns; match finds all entries that apply to a resource of the name.",
        show_default=True,
    ),
]
Allowed = Annotated[
    list[str] | None,
    option("--allow-principal", "PRINCIPAL", "Who may, such as User:alice; User:* is everybody."),
]
Denied = Annotated[
    list[str] | None, option("--deny-principal", "PRINCIPAL", "Who may not, whatever other entries allow.")
]
AllowedHosts = Annotated[
    list[str] | None,
    option("--allow-host", "ADDRESS", "Allow from this address only. [default: from everywhere]"),
]
DeniedHosts = Annotated[
    list[str] | None,
    option("--deny-host", "ADDRESS", "Deny from this address only. [default: from everywhere]"),
]
Operations = Annotated[
    list[str] | None,
    option(
        "--operation",
        "OPERATION",
        "What: read, write, create, delete, alter, describe, describe-configs, alter-configs, "
        "idempotent-write, all, …",
    ),
]
Producer = Annotated[
    bool,
    flag(
        "--producer",
        "What a producer needs: write, describe and create on topics, write and describe on "
        "transactional ids.",
    ),
]
Consumer = Annotated[
    bool, flag("--consumer", "What a consumer needs: read and describe on topics, read on groups.")
]
Idempotent = Annotated[
    bool,
    flag(
        "--idempotent", "What an idempotent producer needed before Kafka 3: idempotent-write on the cluster."
    ),
]
ForPrincipal = Annotated[str | None, option("--principal", "PRINCIPAL", "Only entries of this principal.")]


Resource = tuple[ResourceType, str]

_PRODUCER: Final = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
_CONSUMER: Final = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}


class WrongOptions(ValueError):
    """Options from which no entries can be made. The message says which option is missing or wrong."""


class Holders(msgspec.Struct, frozen=True):
    """The principals of entries, each allowed or denied from some hosts; without hosts, from everywhere."""

    allowed: Sequence[str] = ()
    denied: Sequence[str] = ()
    allowed_hosts: Sequence[str] = ()
    denied_hosts: Sequence[str] = ()

    def __iter__(self) -> Iterator[tuple[str, str, Permission]]:
        """Yield principal, host and permission of each entry. Raises WrongOptions."""
        if self.allowed_hosts and not self.allowed:
            raise WrongOptions("--allow-host needs --allow-principal")
        if self.denied_hosts and not self.denied:
            raise WrongOptions("--deny-host needs --deny-principal")
        for principals, hosts, permission in (
            (self.allowed, self.allowed_hosts, Permission.ALLOW),
            (self.denied, self.denied_hosts, Permission.DENY),
        ):
            for principal in principals:
                if ":" not in principal:
                    raise WrongOptions(
                        f"the principal {principal!r} must have the form User:NAME; {EVERYBODY} is everybody"
                    )
                for host in hosts or (WILDCARD,):
                    yield principal, host, permission


class Actions(msgspec.Struct, frozen=True):
    """The operations of the wanted entries: those an option names, and those a producer or consumer needs."""

    operations: Sequence[str] = ()
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False

    @property
    def names_any(self) -> bool:
        """Whether an option names an operation."""
        return bool(self.operations) or self.producer or self.consumer or self.idempotent

    def on(self, resources: Sequence[Resource]) -> list[tuple[Resource, Operation]]:
        """Return the operations on each resource. Raises WrongOptions."""
        kinds = {kind for kind, _ in resources}
        if (self.producer or self.consumer) and ResourceType.TOPIC not in kinds:
            raise WrongOptions("--producer and --consumer need --topic")
        if self.consumer and ResourceType.GROUP not in kinds:
            raise WrongOptions("--consumer needs --group")
        rights = [
            rights
            for rights, is_asked in ((_PRODUCER, self.producer), (_CONSUMER, self.consumer))
            if is_asked
        ]
        named = [parse_operation(text) for text in self.operations]
        found: dict[tuple[Resource, Operation], None] = {}
        for resource in resources:
            operations = [*named, *(each for one in rights for each in one.get(resource[0], ()))]
            found.update(dict.fromkeys((resource, operation) for operation in operations))
        if self.idempotent:
            found[(ResourceType.CLUSTER, CLUSTER_NAME), Operation.IDEMPOTENT_WRITE] = None
        if not found:
            raise WrongOptions("name an --operation, or --producer, --consumer or --idempotent")
        return list(found)


def _resources(
    topics: Topics = None,
    groups: Groups = None,
    cluster: OfCluster = False,
    transactional_ids: TransactionalIds = None,
    tokens: Tokens = None,
    users: Users = None,
) -> list[Resource]:
    named = {
        ResourceType.TOPIC: topics,
        ResourceType.GROUP: groups,
        ResourceType.CLUSTER: [CLUSTER_NAME] if cluster else (),
        ResourceType.TRANSACTIONAL_ID: transactional_ids,
        ResourceType.DELEGATION_TOKEN: tokens,
        ResourceType.USER: users,
    }
    return [(kind, name) for kind, names in named.items() for name in names or ()]


def _actions(
    operations: Operations = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
) -> Actions:
    return Actions(operations or (), producer, consumer, idempotent)


NamedResources = Annotated[list[Resource], OptionsOf(_resources)]
NamedActions = Annotated[Actions, OptionsOf(_actions)]


@app.command("list")
@asks(any_cluster)
def list_acls(
    opened: OpenedCluster,
    *,
    principal: ForPrincipal = None,
    resources: NamedResources,
    pattern: FoundPattern = "any",
) -> Output:
    """List entries: of resources, of a principal, or all.

    \b
    For example:
      seqgate acls list
      seqgate acls list --topic orders --resource-pattern-type match
      seqgate acls list --principal User:alice
    """  # noqa: D301 - \b keeps the lines of the list apart
    with opened as reached:
        found = find_entries(reached, filters(resources, PatternType[pattern.upper()], principal))
    rows = [row_of(entry) for entry in found]
    return Output({"acls": rows}, [_found(rows)])


@app.command("add")
@asks(any_cluster)
def add(
    opened: OpenedCluster,
    *,
    allowed: Allowed = None,
    denied: Denied = None,
    actions: NamedActions,
    resources: NamedResources,
    pattern: Pattern = "literal",
    allowed_hosts: AllowedHosts = None,
    denied_hosts: DeniedHosts = None,
) -> Output:
    """Add entries: for each principal, resource and operation. They count at once, on open connections too.

    \b
    For example:
      seqgate acls add --allow-principal User:alice --consumer --topic orders --group billing
      seqgate acls add --allow-principal User:bob --producer --topic orders- --resource-pattern-type prefixed
      seqgate acls add --deny-principal 'User:*' --deny-host 192.0.2.7 --operation all --topic '*'
    """  # noqa: D301 - \b keeps the lines of the list apart
    holders = Holders(allowed or (), denied or (), allowed_hosts or (), denied_hosts or ())
    wanted = _entries(resources, pattern, holders, actions)
    unsupported = unsupported_operation(wanted)
    if unsupported is not None:
        raise stop(unsupported, code=2)
    with opened as reached:
        errors = create_entries(reached, wanted)
    outcomes = list(zip(wanted, errors, strict=True))
    return Output(
        {"acls": [AclOutcome(row_of(entry), error) for entry, error in outcomes]},
        [f"{shown(str(entry))}: {'added' if error is None else shown(error)}" for entry, error in outcomes],
        code=1 if any(error is not None for error in errors) else 0,
    )


@app.command("remove")
@asks(any_cluster)
def remove(
    opened: OpenedCluster,
    *,
    allowed: Allowed = None,
    denied: Denied = None,
    actions: NamedActions,
    principal: ForPrincipal = None,
    resources: NamedResources,
    pattern: FoundPattern = "literal",
    allowed_hosts: AllowedHosts = None,
    denied_hosts: DeniedHosts = None,
    consent: Consented,
) -> Output:
    """Remove the entries that `add` makes of the same options, or else all of resources or of a principal,
    those for prefixes only with --resource-pattern-type. Shows the entries first, and asks. With --json the
    command never asks: without --yes it only reports.

    \b
    For example:
      seqgate acls remove --allow-principal User:alice --producer --topic orders
      seqgate acls remove --topic orders
      seqgate acls remove --principal User:alice --resource-pattern-type any --yes
    """  # noqa: D301 - \b keeps the lines of the list apart
    holders = Holders(allowed or (), denied or (), allowed_hosts or (), denied_hosts or ())
    if allowed or denied or allowed_hosts or denied_hosts or actions.names_any:
        if principal is not None or pattern in ("any", "match"):
            raise stop("name single entries, or all entries of a --principal or a pattern, not both", code=2)
        wanted = [filter_of(entry) for entry in _entries(resources, pattern, holders, actions)]
    elif resources or principal is not None:
        wanted = filters(resources, PatternType[pattern.upper()], principal)
    else:
        raise stop("name the entries to remove: a resource such as --topic, or a --principal", code=2)
    with opened as reached:
        removed = consent.plan_ask_and_do(
            lambda execute: (delete_entries if execute else find_entries)(reached, wanted),
            lambda found: [_found([row_of(entry) for entry in found])],
            "Remove them?",
            is_needed=bool,
        )
    rows = [row_of(entry) for entry in removed]
    done = "would be removed" if consent.is_planned else "removed"
    outcome = f"{counted(len(rows), 'entry', 'entries')} {done}."
    return Output({"acls": rows}, [*([_found(rows)] if consent.is_planned or not rows else []), outcome])


def _entries(
    resources: Sequence[Resource], pattern: str, holders: Holders, actions: Actions
) -> list[AclEntry]:
    return parsed_or_exit_2(
        lambda text: entries(resources, PatternType[text.upper()], holders, actions), pattern
    )


def _found(rows: Sequence[AclRow]) -> Block:
    return table(AclRow, rows) if rows else "There are no such entries."


def parse_operation(text: str) -> Operation:
    """Return the operation named, such as DescribeConfigs or describe-configs. Raises WrongOptions."""
    plain = _plain(text)
    for operation in Operation:
        if operation >= Operation.ALL and _plain(operation.name) == plain:
            return operation
    names = ", ".join(each.name for each in Operation if each >= Operation.ALL)
    raise WrongOptions(f"there is no operation {text}; choose from {names}")


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def entries(
    resources: Sequence[Resource], pattern_type: PatternType, holders: Holders, actions: Actions
) -> list[AclEntry]:
    """Return the entries of all resources, holders and operations. Raises WrongOptions."""
    if not resources and (actions.operations or not actions.idempotent):
        raise WrongOptions(
            "name a resource: --topic, --group, --cluster, --transactional-id, --delegation-token or --user"
        )
    wanted = [
        AclEntry(kind, name, _pattern(kind, pattern_type), principal, host, operation, permission)
        for (kind, name), operation in actions.on(resources)
        for principal, host, permission in holders
    ]
    if not wanted:
        raise WrongOptions("name an --allow-principal or a --deny-principal")
    return wanted


def unsupported_operation(wanted: Sequence[AclEntry]) -> str | None:
    """Return the sentence for the first entry about an operation that its resource does not have, as
    kafka-acls refuses it: such an entry never applies.
    """
    for entry in wanted:
        supported = (Operation.ALL, *SUPPORTED[entry.resource_type])
        if entry.operation not in supported:
            kind = entry.resource_type.name.lower().replace("_", " ")
            names = ", ".join(each.name for each in supported)
            return f"{kind} {entry.name} has no operation {entry.operation.name}; choose from {names}"
    return None


def _pattern(kind: ResourceType, pattern_type: PatternType) -> PatternType:
    return PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern_type


def filters(
    resources: Sequence[Resource], pattern_type: PatternType, principal: str | None
) -> list[AclFilter]:
    """Return filters that find all entries of these resources; without resources, those of every resource."""
    if not resources:
        return [AclFilter(pattern_type=pattern_type, principal=principal)]
    return [AclFilter(kind, name, pattern_type, principal) for kind, name in resources]


def filter_of(entry: AclEntry) -> AclFilter:
    """Return the filter that finds one entry."""
    return AclFilter(*entry)


# Over the Kafka protocol: asks a cluster about entries, and changes them. Raises ControlError.


def find_entries(cluster: Cluster, wanted: Sequence[AclFilter]) -> list[AclEntry]:
    """Return the entries that any of the filters finds, sorted."""
    found: set[AclEntry] = set()
    for each in wanted:
        answer = cluster.ask(cluster.reached, cluster.request(29, 3, **_fields(each)))
        found.update(_entry(resource, entry) for resource in answer.resources for entry in resource.acls)
    return sorted(found)


def create_entries(cluster: Cluster, entries: Sequence[AclEntry]) -> list[str | None]:
    """Create entries; return for each why the cluster refuses it, or None."""
    from seqgate.gateway.admin.remote.cluster import refusal  # noqa: PLC0415 - slow to import

    creations = [
        {
            "resource_type": entry.resource_type,
            "resource_name": entry.name,
            "resource_pattern_type": entry.pattern_type,
            "principal": entry.principal,
            "host": entry.host,
            "operation": entry.operation,
            "permission_type": entry.permission,
        }
        for entry in entries
    ]
    answer = cluster.ask(cluster.reached, cluster.request(30, 3, creations=creations), is_change=True)
    return [refusal(result.error_code, result.error_message) for result in answer.results]


def delete_entries(cluster: Cluster, wanted: Sequence[AclFilter]) -> list[AclEntry]:
    """Delete the entries that the filters find; return the deleted entries, sorted."""
    from seqgate.gateway.admin.remote.cluster import check  # noqa: PLC0415 - slow to import

    asked = cluster.request(31, 3, filters=list(map(_fields, wanted)))
    deleted: set[AclEntry] = set()
    for result in cluster.ask(cluster.reached, asked, is_change=True).filter_results:
        check(result)
        for found in result.matching_acls:
            check(found)
            deleted.add(_entry(found, found))
    return sorted(deleted)


def _fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _entry(resource: Any, entry: Any) -> AclEntry:
    return AclEntry(
        ResourceType(resource.resource_type),
        resource.resource_name,
        PatternType(resource.pattern_type),
        entry.principal,
        entry.host,
        Operation(entry.operation),
        Permission(entry.permission_type),
    )
