"""IncrementalAlterConfigs (key 44, versions 0-1): set, delete, append to and subtract from single configurations.

Source: KIP-339, Kafka's ConfigAdminManager, ConfigurationControlManager.incrementalAlterConfigs.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.handlers.admin.alter_configs import answer_alterations
from gateway.handlers.admin.config_rights import alteration_refusal
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.metadata.configs import Alteration, ConfigChange
from gateway.runtime.services import TopicServices

API_KEY: Final = 44


async def handle(context: RequestContext[TopicServices], request: Any) -> Any:
    """Carry out the operations on each resource, or only check them when `validate_only` is set."""
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            [ConfigChange(config.name, config.value, config.config_operation) for config in resource.configs],
            denied=alteration_refusal(context, resource.resource_type, resource.resource_name),
        )
        for resource in request.resources
    ]
    return await answer_alterations(context, request, API_KEY, alterations)


API = Api(
    key=API_KEY,
    name="IncrementalAlterConfigs",
    min_version=0,
    max_version=1,
    reaches=api.topics,
    handle=handle,
)
