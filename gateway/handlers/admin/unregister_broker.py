"""UnregisterBroker (key 64, version 0): remove a broker from the cluster; this node is the only one, and stays.

Kafka unregisters a broker that runs as well. Here that would leave no broker, so the request gets INVALID_REQUEST.
The client needs ALTER on the cluster.
Source: Kafka's ClusterControlManager.unregisterBroker.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import reach
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.rights import cluster_refusal
from gateway.protocol.messages import build, response_module
from gateway.runtime.services import NodeServices
from gateway.security.acls.codes import Operation


async def handle(context: RequestContext[NodeServices], request: Any) -> Any:
    """Refuse: the broker is unknown, or it is this node."""
    module = response_module(64, context.api_version)
    denied = cluster_refusal(context, Operation.ALTER)
    if denied is not None:
        return build(
            module.UnregisterBrokerResponse, error_code=denied.error_code, error_message=denied.message
        )
    broker = request.broker_id
    code = ErrorCode.broker_id_not_registered
    text = f"Broker ID {broker} is not currently registered"
    if broker == context.node.node_id:
        code = ErrorCode.invalid_request
        text = (
            f"Broker ID {broker} is this gateway, the only broker; to remove the gateway, stop the gateway."
        )
    return build(module.UnregisterBrokerResponse, error_code=code, error_message=text)


API = Api(
    key=64,
    name="UnregisterBroker",
    min_version=0,
    max_version=0,
    reaches=reach.node,
    handle=handle,
)
