"""The right of one fetch to read its topics: a consumer needs READ on each topic, a follower CLUSTER_ACTION on the cluster.

A topic is asked for once in a request, when it is first read. A right that is taken away while the fetch waits therefore
counts from the next fetch on, as in Kafka. Source: Kafka's KafkaApis.handleFetchRequest.
"""

from __future__ import annotations

from gateway.handlers.answering.api import RequestContext
from gateway.protocol.fetch_request import FetchRequest, TopicKey
from gateway.runtime.services import PartitionServices
from gateway.security.acls.codes import Operation


class FetchRights:
    """Decides for the topics of one fetch; exists only where there is an authorizer."""

    __slots__ = ("_context", "_decided", "_is_refused_follower", "_reads_as_follower")

    def __init__(self, context: RequestContext[PartitionServices], request: FetchRequest) -> None:
        self._context = context
        self._decided: dict[TopicKey, bool] = {}
        self._reads_as_follower = request.replica_id >= 0
        self._is_refused_follower = self._reads_as_follower and not context.may_cluster(
            Operation.CLUSTER_ACTION
        )

    def denies(self, key: TopicKey) -> bool:
        """Return whether the client may not read the topic, whether it exists or not.

        An id that nobody has is not denied to a consumer; it is asked for again once a topic has it.
        """
        if self._reads_as_follower:
            return self._is_refused_follower
        decided = self._decided.get(key)
        if decided is None:
            name = self._context.services.registry.name_of(key)
            if name is None:
                return False
            decided = self._decided[key] = not self._context.may_topic(Operation.READ, name)
        return decided
