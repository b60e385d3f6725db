"""The handlers: one module per API of the Kafka protocol, or for all APIs about one thing (`acls`), and the
one list of them. Dispatch, ApiVersions and `docs/protocol-support.md` are generated from `APIS`.
"""

from __future__ import annotations

from typing import Any

from seqgate.gateway.handlers.admin import (
    alter_partition_reassignments,
    brokers,
    configs,
    describe_cluster,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    log_dirs,
    metadata,
    topics,
    update_features,
)
from seqgate.gateway.handlers.admin.api_versions import api_versions
from seqgate.gateway.handlers.answering.api import Api
from seqgate.gateway.handlers.groups import (
    classic_group,
    consumer_group,
    find_coordinator,
    groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    streams_group,
)
from seqgate.gateway.handlers.records import (
    delete_records,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from seqgate.gateway.handlers.security import (
    acls,
    client_quotas,
    delegation_tokens,
    sasl,
    user_scram_credentials,
)
from seqgate.gateway.handlers.sharing import share_fetch, share_group, share_group_offsets, share_group_state
from seqgate.gateway.handlers.telemetry import client_telemetry
from seqgate.gateway.handlers.transactions import (
    add_to_txn,
    describe_producers,
    end_txn,
    init_producer_id,
    transactions,
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
    classic_group.JOIN_GROUP_API,
    classic_group.HEARTBEAT_API,
    classic_group.LEAVE_GROUP_API,
    classic_group.SYNC_GROUP_API,
    classic_group.DESCRIBE_GROUPS_API,
    groups.LIST_GROUPS_API,
    sasl.SASL_HANDSHAKE_API,
    topics.CREATE_TOPICS_API,
    topics.DELETE_TOPICS_API,
    delete_records.API,
    init_producer_id.API,
    offset_for_leader_epoch.API,
    add_to_txn.ADD_PARTITIONS_TO_TXN_API,
    add_to_txn.ADD_OFFSETS_TO_TXN_API,
    end_txn.API,
    txn_offset_commit.API,
    write_txn_markers.API,
    acls.DESCRIBE_ACLS_API,
    acls.CREATE_ACLS_API,
    acls.DELETE_ACLS_API,
    configs.DESCRIBE_CONFIGS_API,
    configs.ALTER_CONFIGS_API,
    log_dirs.ALTER_REPLICA_LOG_DIRS_API,
    log_dirs.DESCRIBE_LOG_DIRS_API,
    sasl.SASL_AUTHENTICATE_API,
    topics.CREATE_PARTITIONS_API,
    groups.DELETE_GROUPS_API,
    delegation_tokens.CREATE_DELEGATION_TOKEN_API,
    delegation_tokens.RENEW_DELEGATION_TOKEN_API,
    delegation_tokens.EXPIRE_DELEGATION_TOKEN_API,
    delegation_tokens.DESCRIBE_DELEGATION_TOKEN_API,
    elect_leaders.API,
    configs.INCREMENTAL_ALTER_CONFIGS_API,
    alter_partition_reassignments.ALTER_PARTITION_REASSIGNMENTS_API,
    alter_partition_reassignments.LIST_PARTITION_REASSIGNMENTS_API,
    offset_delete.API,
    client_quotas.DESCRIBE_CLIENT_QUOTAS_API,
    client_quotas.ALTER_CLIENT_QUOTAS_API,
    user_scram_credentials.DESCRIBE_USER_SCRAM_CREDENTIALS_API,
    user_scram_credentials.ALTER_USER_SCRAM_CREDENTIALS_API,
    describe_quorum.API,
    update_features.API,
    describe_cluster.API,
    describe_producers.API,
    brokers.BROKER_HEARTBEAT_API,
    brokers.UNREGISTER_BROKER_API,
    transactions.DESCRIBE_TRANSACTIONS_API,
    transactions.LIST_TRANSACTIONS_API,
    consumer_group.CONSUMER_GROUP_HEARTBEAT_API,
    consumer_group.CONSUMER_GROUP_DESCRIBE_API,
    client_telemetry.GET_TELEMETRY_SUBSCRIPTIONS_API,
    client_telemetry.PUSH_TELEMETRY_API,
    configs.LIST_CONFIG_RESOURCES_API,
    describe_topic_partitions.API,
    share_group.SHARE_GROUP_HEARTBEAT_API,
    share_group.SHARE_GROUP_DESCRIBE_API,
    share_fetch.SHARE_FETCH_API,
    share_fetch.SHARE_ACKNOWLEDGE_API,
    share_group_state.INITIALIZE_SHARE_GROUP_STATE_API,
    share_group_state.READ_SHARE_GROUP_STATE_API,
    share_group_state.WRITE_SHARE_GROUP_STATE_API,
    share_group_state.DELETE_SHARE_GROUP_STATE_API,
    share_group_state.READ_SHARE_GROUP_STATE_SUMMARY_API,
    share_group_offsets.DESCRIBE_SHARE_GROUP_OFFSETS_API,
    share_group_offsets.ALTER_SHARE_GROUP_OFFSETS_API,
    share_group_offsets.DELETE_SHARE_GROUP_OFFSETS_API,
    streams_group.STREAMS_GROUP_HEARTBEAT_API,
    streams_group.STREAMS_GROUP_DESCRIBE_API,
    streams_group.TOPOLOGY_DESCRIPTION_UPDATE_API,
    brokers.UNREGISTER_CONTROLLER_API,
)

APIS: tuple[Api[Any], ...] = (*_SERVED, api_versions(_SERVED))
"""All APIs that this gateway serves and advertises."""
