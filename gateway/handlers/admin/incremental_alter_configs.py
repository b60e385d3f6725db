"""IncrementalAlterConfigs (key 44, versions 0-1): set, delete, append to and subtract from single configurations.

Source: KIP-339, Kafka's ConfigAdminManager, ConfigurationControlManager.incrementalAlterConfigs.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from gateway.handlers.admin.alter_configs import alter
from gateway.handlers.answering.api import Api, RequestContext
from gateway.metadata.configs import Alteration, ConfigChange
from gateway.protocol.messages import build, response_module


async def handle(context: RequestContext, request: Any) -> Any:
    """Change the configurations, or only check them when `validate_only` is set."""
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            [ConfigChange(config.name, config.value, config.config_operation) for config in resource.configs],
        )
        for resource in request.resources
    ]
    errors = await alter(context, alterations, validate_only=request.validate_only)
    module = response_module(44, context.api_version)
    return build(
        module.IncrementalAlterConfigsResponse,
        responses=tuple(
            build(
                module.AlterConfigsResourceResponse,
                error_code=error.error_code if error else ErrorCode.none,
                error_message=error.message if error else None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, error in zip(request.resources, errors, strict=True)
        ),
    )


API = Api(key=44, name="IncrementalAlterConfigs", min_version=0, max_version=1, handle=handle)
