"""The JSON output of `seqgate acls … --json`, in Kafka's words."""

from __future__ import annotations

import msgspec

from gateway.security.acls.access import AclEntry


class AclRow(msgspec.Struct, frozen=True):
    """One access control entry."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


class AclOutcome(msgspec.Struct, frozen=True):
    """An entry that a command wanted to add or remove; `error` is the reason if the cluster refused the entry."""

    entry: AclRow
    error: str | None


def row_of(entry: AclEntry) -> AclRow:
    """Return the output row of an entry."""
    return AclRow(
        entry.resource_type.name,
        entry.name,
        entry.pattern_type.name,
        entry.principal,
        entry.host,
        entry.operation.name,
        entry.permission.name,
    )
