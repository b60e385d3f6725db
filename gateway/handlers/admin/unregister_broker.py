"""UnregisterBroker (key 64, version 0): remove a gateway that has ended from the cluster.

Kafka unregisters a broker that runs as well. A gateway that runs would serve on, so the request gets
INVALID_REQUEST. The client needs ALTER on the cluster. Source: Kafka's
ClusterControlManager.unregisterBroker.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import change_metadata
from seqgate.gateway.handlers.answering.rights import cluster_refusal
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.metadata.membership import unregister_broker
from seqgate.gateway.protocol.messages import build
from seqgate.gateway.runtime.services import TopicServices
from seqgate.gateway.security.acls.access import Operation


async def handle(context: RequestContext[TopicServices], request: Any) -> Any:
    """Remove the broker, or refuse: it is unknown, or it runs."""
    module = context.response_module
    denied = cluster_refusal(context, Operation.ALTER)
    if denied is not None:
        return build(
            module.UnregisterBrokerResponse, error_code=denied.error_code, error_message=denied.message
        )
    broker = request.broker_id
    if broker == context.node.node_id:
        code = ErrorCode.invalid_request
        text = f"Broker ID {broker} is this gateway; to remove the gateway, stop the gateway."
        return build(module.UnregisterBrokerResponse, error_code=code, error_message=text)
    refused = await change_metadata(context, lambda image: unregister_broker(image, broker))
    error = refused or ApiError(ErrorCode.none)
    return build(module.UnregisterBrokerResponse, error_code=error.error_code, error_message=error.message)


API = Api(64, "UnregisterBroker", 0, 0, api.topics, handle=handle)
