"""One module per API of the Kafka protocol, named after it, and the one list of them.

Dispatch, ApiVersions and `docs/protocol-support.md` are made from `APIS`.
"""

from __future__ import annotations

from gateway.handlers import (
    alter_configs,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from gateway.handlers.api import Api
from gateway.handlers.api_versions import api_versions

_SERVED: tuple[Api, ...] = (
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
    describe_configs.API,
    alter_configs.API,
    describe_log_dirs.API,
    create_partitions.API,
    delete_groups.API,
    incremental_alter_configs.API,
    offset_delete.API,
    describe_cluster.API,
    describe_producers.API,
    consumer_group_heartbeat.API,
    consumer_group_describe.API,
    describe_topic_partitions.API,
)

APIS: tuple[Api, ...] = (*_SERVED, api_versions(_SERVED))
"""Everything this gateway answers; nothing else is advertised."""
