"""Asks a cluster about access control entries, and changes them. Every function raises ControlError."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.create_acls.v3.response import CreateAclsResponse
from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.delete_acls.v3.response import DeleteAclsResponse
from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import DescribeAclsResponse
from kio.static.primitive import i8

from seqgate.gateway.admin.remote.cluster import Cluster, ask_broker, check, refusal
from seqgate.gateway.security.acls.access import (
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)


def find(cluster: Cluster, wanted: Sequence[AclFilter]) -> list[AclEntry]:
    """Return the entries that any of the filters finds, sorted."""
    found: set[AclEntry] = set()
    for each in wanted:
        answer = ask_broker(cluster.reached, DescribeAclsRequest(**_fields(each)), DescribeAclsResponse)
        check(answer)
        found.update(_entry(resource, entry) for resource in answer.resources for entry in resource.acls)
    return sorted(found)


def create(cluster: Cluster, entries: Sequence[AclEntry]) -> list[str | None]:
    """Create entries; return for each why the cluster refuses it, or None."""
    creations = tuple(
        AclCreation(
            resource_type=i8(entry.resource_type),
            resource_name=entry.name,
            resource_pattern_type=i8(entry.pattern_type),
            principal=entry.principal,
            host=entry.host,
            operation=i8(entry.operation),
            permission_type=i8(entry.permission),
        )
        for entry in entries
    )
    answer = ask_broker(cluster.reached, CreateAclsRequest(creations=creations), CreateAclsResponse)
    return [refusal(result.error_code, result.error_message) for result in answer.results]


def delete(cluster: Cluster, wanted: Sequence[AclFilter]) -> list[AclEntry]:
    """Delete the entries that the filters find; return the deleted entries, sorted."""
    request = DeleteAclsRequest(filters=tuple(DeleteAclsFilter(**_fields(each)) for each in wanted))
    deleted: set[AclEntry] = set()
    for result in ask_broker(cluster.reached, request, DeleteAclsResponse).filter_results:
        check(result)
        for found in result.matching_acls:
            check(found)
            deleted.add(_entry(found, found))
    return sorted(deleted)


def _fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": i8(wanted.resource_type),
        "resource_name_filter": wanted.name,
        "pattern_type_filter": i8(wanted.pattern_type),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": i8(wanted.operation),
        "permission_type": i8(wanted.permission),
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
