"""Requests about the cluster that name no configuration: brokers, features, quorum."""

from __future__ import annotations

import uuid

from tests.compat.differential.rights.stage import Stage
from tests.compat.differential.rights.table import (
    ALTER_CLUSTER,
    CLUSTER_ACTION,
    CREATE_CLUSTER,
    DESCRIBE_CLUSTER,
    IDEMPOTENT_WRITE,
    row,
)

NO_BROKER = 77


@row(DESCRIBE_CLUSTER, ALTER_CLUSTER, CREATE_CLUSTER, CLUSTER_ACTION, IDEMPOTENT_WRITE, cases=(0, 2))
def describe_cluster(stage: Stage, version: int) -> None:
    stage.user.call("describe_cluster", version, include_cluster_authorized_operations=True, endpoint_type=1)
    stage.user.call("describe_cluster", version, include_cluster_authorized_operations=False, endpoint_type=1)


@row(DESCRIBE_CLUSTER, cases=(0, 2))
def describe_quorum(stage: Stage, version: int) -> None:
    """Ask for a topic that has no quorum, so that offsets do not matter."""
    topics = [{"topic_name": "no-quorum", "partitions": [{"partition_index": 0}]}]
    stage.user.call("describe_quorum", version, topics=topics)


@row(ALTER_CLUSTER, cases=(0, 2))
def update_features(stage: Stage, version: int) -> None:
    updates = [{"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": 1}]
    stage.user.call("update_features", version, feature_updates=updates, timeout=5_000, validate_only=True)


@row(ALTER_CLUSTER)
def unregister_broker(stage: Stage) -> None:
    stage.user.call("unregister_broker", 0, broker_id=NO_BROKER)


@row(DESCRIBE_CLUSTER, cases=(0, 3, 4))
def api_versions(stage: Stage, version: int) -> None:
    """Send ApiVersions after the login; this API needs no right."""
    stage.user.call("api_versions", version, client_software_name="rights", client_software_version="1")


@row()
def client_telemetry(stage: Stage) -> None:
    """Ask for a subscription and push: clients need no right for either."""
    client = str(uuid.uuid5(uuid.NAMESPACE_OID, stage.name(stage.step)))
    asked = stage.user.call("get_telemetry_subscriptions", 0, client_instance_id=client)
    fields = {"subscription_id": asked["subscription_id"], "metrics": b""}
    stage.user.call("push_telemetry", 0, client_instance_id=client, **fields)
