"""DescribeCluster (key 60, versions 0-2): list the brokers. From v2 on a client may ask for fenced brokers,
too. Rights: `DESCRIBE` on the cluster (else the list of authorized operations is empty).

From v1 on a client asks for brokers or for controllers; this node only knows brokers. In v0 `seqgate`
commands and other gateways may ask what this gateway tells of itself, in a tagged field that Kafka skips
(`QUESTION_TAG` in `protocol/kafka_4_4.py`). That needs DESCRIBE on the cluster, or ALTER for lines of the log
and for a backup (`answer_question` in `admin/operations.py` decides which); CLUSTER_ACTION does for all.
Source: Kafka's AuthHelper.computeDescribeClusterResponse.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.rights import NOT_ASKED, cluster_operations_if_described
from seqgate.gateway.runtime.services import NodeServices
from seqgate.gateway.security.acls.access import CLUSTER_NAME, Operation, ResourceType

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


async def handle(context: RequestContext[NodeServices], request: Any) -> Any:
    """List the brokers under their addresses on the client's listener."""
    node = context.node
    endpoint_type = getattr(request, "endpoint_type", _BROKERS)
    if endpoint_type != _BROKERS:
        code, text = ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {endpoint_type}"
        if endpoint_type == _CONTROLLERS:
            code = ErrorCode.mismatched_endpoint_type
            text = "The request asks for controllers, but this endpoint serves brokers."
        return _answer(context, error_code=code, error_message=text)
    with_fenced = getattr(request, "include_fenced_brokers", False)
    brokers = [
        {
            "broker_id": broker.node_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "is_fenced": broker.is_fenced,
        }
        for broker in node.brokers.on(context.listener_name)
        if with_fenced or not broker.is_fenced
    ]
    asked = request.include_cluster_authorized_operations
    question = getattr(request, "question", None)
    return _answer(
        context,
        cluster_id=node.cluster_id,
        controller_id=node.brokers.controller_id,
        brokers=brokers,
        cluster_authorized_operations=cluster_operations_if_described(context) if asked else NOT_ASKED,
        answer=None if question is None else await _told(context, question),
    )


async def _told(context: RequestContext[NodeServices], question: str) -> bytes | None:
    def may(right: Operation) -> bool:
        is_gateway = context.could(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        return is_gateway or context.may_cluster(right)

    answers = context.node.questions
    return None if answers is None else await answers(question, may, context.requester())


def _answer(context: RequestContext[NodeServices], **fields: Any) -> Any:
    nothing = {
        "error_code": ErrorCode.none,
        "endpoint_type": _BROKERS,
        "cluster_id": "",
        "controller_id": -1,
        "brokers": (),
        "cluster_authorized_operations": NOT_ASKED,
    }
    return context.answer(**nothing | fields)


API = Api(key=60, versions=(0, 2), reaches=api.node, handle=handle)
