"""The APIs of ACLs and SCRAM users, which the cluster's rights guard."""

from __future__ import annotations

from tests.compat.differential.rights.stage import Stage
from tests.compat.differential.rights.table import ALTER_CLUSTER, DESCRIBE_CLUSTER, row
from tests.support.wire import Plain

TOPIC, LITERAL, READ, ALLOW = 2, 3, 3, 3


def _filter(stage: Stage) -> Plain:
    return {
        "resource_type_filter": TOPIC,
        "resource_name_filter": stage.name("acl"),
        "pattern_type_filter": LITERAL,
        "principal_filter": None,
        "host_filter": None,
        "operation": READ,
        "permission_type": ALLOW,
    }


@row(DESCRIBE_CLUSTER, cases=(1, 3))
def describe_acls(stage: Stage, version: int) -> None:
    stage.user.call("describe_acls", version, **_filter(stage))


@row(ALTER_CLUSTER, cases=(1, 3))
def create_acls(stage: Stage, version: int) -> None:
    creation = {
        "resource_type": TOPIC,
        "resource_name": stage.name("acl"),
        "resource_pattern_type": LITERAL,
        "principal": "User:nobody",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    stage.user.call("create_acls", version, creations=[creation])


@row(ALTER_CLUSTER, cases=(1, 3))
def delete_acls(stage: Stage, version: int) -> None:
    stage.user.call("delete_acls", version, filters=[_filter(stage)])


@row(DESCRIBE_CLUSTER, cases={"some": ("nobody", "no-other", "nobody"), "all": ()})
def describe_user_scram_credentials(stage: Stage, suffixes: tuple[str, ...]) -> None:
    users = [{"name": stage.name(suffix)} for suffix in suffixes]
    stage.user.call("describe_user_scram_credentials", 0, users=users)


@row(DESCRIBE_CLUSTER)
def describe_scram_credentials_of_null(stage: Stage) -> None:
    stage.user.call_briefly("describe_user_scram_credentials", 0, users=None)


@row(ALTER_CLUSTER)
def alter_user_scram_credentials(stage: Stage) -> None:
    """Delete credentials that do not exist, of two users."""
    deletions = [{"name": stage.name(suffix), "mechanism": 1} for suffix in ("nobody", "no-other")]
    stage.user.call("alter_user_scram_credentials", 0, deletions=deletions, upsertions=[])
