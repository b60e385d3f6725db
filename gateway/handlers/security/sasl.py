"""SaslHandshake (key 17, versions 0-1): begin a login. Listeners with SASL take it before it comes here
(`Login.route` in `gateway/server/sasl.py`). Rights: none.

Here it comes from a client that is logged in and need not log in again, because its session has no end or
has just begun, or on a listener without SASL: ILLEGAL_SASL_STATE, and the connection stays. Source: Kafka's
KafkaApis.handleSaslHandshakeRequest.

SaslAuthenticate (key 36, versions 0-2): continue a login. Listeners with SASL take it before it comes here
(`gateway/server/sasl.py`). Rights: none.

Here it comes from a client that is logged in, or on a listener without SASL: ILLEGAL_SASL_STATE, and the
connection stays. Source: Kafka's KafkaApis.handleSaslAuthenticateRequest.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext, ResponseBytes
from seqgate.gateway.protocol.messages import encode_response
from seqgate.gateway.runtime.services import NodeServices


def refuse(
    context: RequestContext[NodeServices],
    request: Any,  # noqa: ARG001 - always refused
) -> ResponseBytes:
    """Refuse the request with an answer: the connection stays, which only `CloseConnection` would end."""
    response = context.answer(
        error_code=ErrorCode.illegal_sasl_state,
        mechanisms=(),
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )
    return encode_response(context.api_key, context.correlation_id, response)


SASL_HANDSHAKE_API = Api(key=17, versions=(0, 1), reaches=api.node, begin=refuse)
SASL_AUTHENTICATE_API = Api(key=36, versions=(0, 2), reaches=api.node, begin=refuse)
