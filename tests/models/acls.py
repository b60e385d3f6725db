"""The rule of access control lists in the fewest lines: every decision checks every entry.

Source: Kafka's StandardAuthorizer and Authorizer.authorizeByResourceType.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from seqgate.gateway.security.acls.access import AclEntry, Operation, PatternType, Permission, ResourceType

IMPLIED = {
    Operation.READ: {Operation.DESCRIBE},
    Operation.WRITE: {Operation.DESCRIBE},
    Operation.DELETE: {Operation.DESCRIBE},
    Operation.ALTER: {Operation.DESCRIBE},
    Operation.ALTER_CONFIGS: {Operation.DESCRIBE_CONFIGS},
}


def is_about(entry: AclEntry, resource_type: ResourceType, name: str) -> bool:
    if entry.resource_type is not resource_type:
        return False
    if entry.pattern_type is PatternType.PREFIXED:
        return name.startswith(entry.name)
    return entry.name in (name, "*")


def is_for(entry: AclEntry, principal: str, host: str) -> bool:
    return entry.principal in (principal, "User:*") and entry.host in (host, "*")


def allows(
    entries: Iterable[AclEntry],
    super_users: Collection[str],
    everyone_if_none: bool,
    principal: str,
    host: str,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
) -> bool:
    """Return whether the principal may carry out the operation, after checking every entry."""
    if principal in super_users:
        return True
    applying = [entry for entry in entries if is_about(entry, resource_type, name)]
    mine = [entry for entry in applying if is_for(entry, principal, host)]
    if any(
        entry.permission is Permission.DENY and entry.operation in (operation, Operation.ALL)
        for entry in mine
    ):
        return False
    if any(
        entry.permission is Permission.ALLOW
        and (entry.operation in (operation, Operation.ALL) or operation in IMPLIED.get(entry.operation, ()))
        for entry in mine
    ):
        return True
    return everyone_if_none and not applying


def allows_some(
    entries: Iterable[AclEntry],
    super_users: Collection[str],
    everyone_if_none: bool,
    principal: str,
    host: str,
    operation: Operation,
    resource_type: ResourceType,
) -> bool:
    """Decide whether some resource of the type may exist that the principal may use, as Kafka reckons."""
    entries = list(entries)
    if allows(entries, super_users, everyone_if_none, principal, host, operation, resource_type, "hardcode"):
        return True
    mine = [
        entry
        for entry in entries
        if entry.resource_type is resource_type
        and is_for(entry, principal, host)
        and entry.operation in (operation, Operation.ALL)
    ]
    denying = [entry for entry in mine if entry.permission is Permission.DENY]
    if any(entry.name == "*" and entry.pattern_type is PatternType.LITERAL for entry in denying):
        return False
    return any(
        not any(dominates(denied, allowed) for denied in denying)
        for allowed in mine
        if allowed.permission is Permission.ALLOW
    )


def dominates(denied: AclEntry, allowed: AclEntry) -> bool:
    """Return whether the denying entry covers all resources that the allowing entry allows."""
    if allowed.pattern_type is PatternType.LITERAL and allowed.name == "*":
        return False
    if denied.pattern_type is PatternType.PREFIXED:
        return allowed.name.startswith(denied.name)
    return allowed.pattern_type is PatternType.LITERAL and allowed.name == denied.name
