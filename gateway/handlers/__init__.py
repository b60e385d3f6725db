"""The handlers: one module per API of the Kafka protocol, named after it, and the one list of them.

Dispatch, ApiVersions and `docs/protocol-support.md` are generated from `APIS`.
"""

from __future__ import annotations

from typing import Any

from gateway.handlers.admin import (
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    incremental_alter_configs,
    list_config_resources,
    list_partition_reassignments,
    metadata,
    unregister_broker,
    update_features,
)
from gateway.handlers.answering.api import Api
from gateway.handlers.answering.api_versions import api_versions
from gateway.handlers.groups import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    streams_group_describe,
    streams_group_heartbeat,
    sync_group,
)
from gateway.handlers.records import delete_records, fetch, list_offsets, offset_for_leader_epoch, produce
from gateway.handlers.security import (
    alter_client_quotas,
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
)
from gateway.handlers.sharing import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
)
from gateway.handlers.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)

_SERVED: tuple[Api[Any], ...] = (
    produce.API,
    fetch.API,
    list_offsets.API,
    metadata.API,
    offset_commit.API,
    offset_fetch.API,
    find_coordinator.API,
    join_group.API,
    heartbeat.API,
    leave_group.API,
    sync_group.API,
    describe_groups.API,
    list_groups.API,
    create_topics.API,
    delete_topics.API,
    delete_records.API,
    init_producer_id.API,
    offset_for_leader_epoch.API,
    add_partitions_to_txn.API,
    add_offsets_to_txn.API,
    end_txn.API,
    txn_offset_commit.API,
    write_txn_markers.API,
    describe_acls.API,
    create_acls.API,
    delete_acls.API,
    describe_configs.API,
    alter_configs.API,
    alter_replica_log_dirs.API,
    describe_log_dirs.API,
    create_partitions.API,
    delete_groups.API,
    elect_leaders.API,
    incremental_alter_configs.API,
    alter_partition_reassignments.API,
    list_partition_reassignments.API,
    offset_delete.API,
    describe_client_quotas.API,
    alter_client_quotas.API,
    describe_quorum.API,
    update_features.API,
    describe_cluster.API,
    describe_producers.API,
    unregister_broker.API,
    describe_transactions.API,
    list_transactions.API,
    consumer_group_heartbeat.API,
    consumer_group_describe.API,
    list_config_resources.API,
    describe_topic_partitions.API,
    share_group_heartbeat.API,
    share_group_describe.API,
    share_fetch.API,
    share_acknowledge.API,
    describe_share_group_offsets.API,
    alter_share_group_offsets.API,
    delete_share_group_offsets.API,
    streams_group_heartbeat.API,
    streams_group_describe.API,
)

APIS: tuple[Api[Any], ...] = (*_SERVED, api_versions(_SERVED))
"""All APIs that this gateway serves and advertises."""
