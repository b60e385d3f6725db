"""Settings of the node and its log lines, of its listeners and connections, of client quotas, and of the
limits that all clients share.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from seqgate.gateway.config.listeners import DEFAULT_MAP, listener_complaint, parse_protocol_map
from seqgate.gateway.config.setting import INT_MAX, Section, complaint_of

# Limits on the connections of one address, written `ADDRESS:COUNT`.


@lru_cache(maxsize=4)
def parse_overrides(text: str) -> dict[str, int]:
    """Return the number of connections of each address. Raises ValueError with the reason."""
    limits: dict[str, int] = {}
    for item in text.split(",") if text else ():
        host, _, count = item.strip().rpartition(":")
        try:
            address = ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            raise ValueError(f"{item.strip()!r} must have the form ADDRESS:COUNT") from None
        if not (count.isascii() and count.isdecimal() and len(count) < 12 and int(count) <= INT_MAX):
            raise ValueError(f"the count of {item.strip()!r} must be a number from 0 to {INT_MAX}")
        limits[str(address)] = int(count)
    return limits


_NODE = Section("Node")
_NETWORK = Section("Listeners and connections")

NETWORK_SETTINGS = (
    _NODE.whole("node.id", 1, minimum=0)(
        "Number of this node in Metadata, and its owner name in the blocks of producer ids that it claims. "
        "In a cluster each gateway needs its own: unset, a gateway keeps the number in its data directory, "
        "or gets the one that was last registered at its address, or else a new one."
    ),
    _NODE.text("broker.rack", None)("Rack of this node, which clients see in Metadata."),
    _NODE.text(
        "log.dirs",
        "./data",
        check=lambda value: (
            None if value and "," not in str(value) else "there must be exactly one data directory"
        ),
    )("The data directory; exactly one. A second gateway on the same directory does not start."),
    _NETWORK.items("listeners", ("PLAINTEXT://127.0.0.1:9092",), check=listener_complaint)(
        "Addresses to listen on, `NAME://HOST:PORT` separated by commas. Write IPv6 as `[::1]`; no host, or "
        "`[::]`, is every interface of IPv4 and IPv6. Port 0 takes a free port."
    ),
    _NETWORK.text("listener.security.protocol.map", DEFAULT_MAP, check=complaint_of(parse_protocol_map))(
        "What each listener speaks, `NAME:PROTOCOL` separated by commas; the protocols are PLAINTEXT, SSL "
        "(TLS), SASL_PLAINTEXT (logins) and SASL_SSL (both). `PLAINTEXT1`, `PLAINTEXT2` and so on, the "
        "names that further `--listen` flags get, speak plaintext."
    ),
    _NETWORK.items("advertised.listeners", None, check=listener_complaint)(
        "Addresses that clients get in Metadata, by listener name, where these differ from `listeners` "
        "(behind a proxy or NAT)."
    ),
    _NETWORK.switch("seqgate.allow.insecure.listeners", False)(
        "Whether the gateway starts with a listener without authentication on an address other than the "
        "loopback: PLAINTEXT, SSL without `ssl.client.auth=required`, or OAUTHBEARER with "
        "`seqgate.allow.insecure.oauthbearer.tokens=true`. Everybody who reaches such a listener may do "
        "everything that `User:ANONYMOUS` may."
    ),
    _NETWORK.whole("seqgate.tls.handshake.timeout.ms", 30000, minimum=1)(
        "Time in which a client must finish the TLS handshake."
    ),
    _NETWORK.whole("seqgate.handshake.slice.ms", 5, minimum=1, maximum=1000)(
        "Time of each turn of the event loop for the TLS handshakes and logins of new connections, all "
        "together. Beyond it they wait for the next turns, each address in its turn, so that clients which "
        "hammer a listener do not hold up those that are connected."
    ),
    _NETWORK.whole("socket.request.max.bytes", 104857600, minimum=1)(
        "Size of the largest request. A connection that announces a larger request is closed."
    ),
    _NETWORK.whole("socket.send.buffer.bytes", -1, minimum=-1)(
        "SO_SNDBUF of connections; -1 leaves the size to the operating system."
    ),
    _NETWORK.whole("socket.receive.buffer.bytes", -1, minimum=-1)(
        "SO_RCVBUF of connections; -1 leaves the size to the operating system."
    ),
    _NETWORK.whole("socket.listen.backlog.size", 50, minimum=1)(
        "Connections that the operating system holds until the gateway accepts them."
    ),
    _NETWORK.whole("max.connections", INT_MAX, minimum=0, dynamic=True, per_listener=True)(
        "Connections that are open at once. Further connections are closed when they arrive. "
        "`listener.name.NAME.max.connections` limits one listener, in addition to the limit of all "
        "listeners, which refuses no connection at the listener that `inter.broker.listener.name` names, "
        "where there are others."
    ),
    _NETWORK.whole("max.connection.creation.rate", INT_MAX, minimum=1, dynamic=True, per_listener=True)(
        "New connections in a second, over the last `quota.window.num` windows. Beyond the rate the "
        "listener accepts no connection for a while, at most for one window (`quota.window.size.seconds`): "
        "clients wait, and none is refused. `listener.name.NAME.max.connection.creation.rate` limits one "
        "listener, in addition to the limit of all listeners, which does not hold for the listener that "
        "`inter.broker.listener.name` names, where there are others."
    ),
    _NETWORK.whole("max.connections.per.ip", INT_MAX, minimum=0, dynamic=True)(
        "Connections that are open at once from one address. Further connections are closed when they arrive."
    ),
    _NETWORK.text("max.connections.per.ip.overrides", "", check=complaint_of(parse_overrides), dynamic=True)(
        "Addresses with a limit of their own instead of `max.connections.per.ip`, `ADDRESS:COUNT` separated "
        "by commas. Write IPv6 as `[::1]:5`. Host names are not resolved."
    ),
    _NETWORK.long("connections.max.idle.ms", 600000, minimum=1)(
        "Time after which an idle connection is closed, and a connection whose request is stalled. A "
        "connection that waits for the answer to a long poll is not idle, unless the client has sent "
        "further requests after the long poll."
    ),
    _NETWORK.long("queued.max.request.bytes", 134217728, minimum=-1)(
        "Most bytes of requests that have arrived and are not finished, over all connections. Beyond the "
        "limit the gateway pauses reading, and closes connections whose request is stalled. One whole "
        "request may exceed the limit. A client whose requests wait for a thread or a coordinator must leave "
        "as much room free as they take; the client is the principal, or the address without a login. "
        "-1, Kafka's default, sets no limit."
    ),
    _NETWORK.whole("seqgate.connection.response.backlog.bytes", 65536, minimum=1, dynamic=True)(
        "Bytes of unread answers of one connection. Beyond the limit the gateway reads no further requests "
        "from the connection. Fetched records do not count: they wait in their files."
    ),
    _NETWORK.text("seqgate.loopback.congestion.control", "reno")(
        "TCP congestion control for clients on this machine, if the system has it; empty leaves the "
        "system's default. Without a network in between, the pacing that some systems do by default (BBR) "
        "only costs: it halves the speed of fetches."
    ),
    _NETWORK.whole("seqgate.connection.max.in.flight.requests", 100, minimum=1, dynamic=True)(
        "Requests of one connection that are in progress at once. Beyond the limit the gateway reads no "
        "further requests from the connection."
    ),
    _NETWORK.whole("seqgate.admin.timeout.ms", 30000, minimum=1, dynamic=True)(
        "Longest time that an administrative request waits until its change is durable, whatever the "
        "request allows."
    ),
    _NETWORK.whole("max.incremental.fetch.session.cache.slots", 1000, minimum=0)(
        "Fetch sessions that are kept at once. Further consumers send full fetch requests."
    ),
    _NETWORK.whole("fetch.max.bytes", 57671680, minimum=1024)(
        "Largest number of record bytes in one fetch answer, whatever the request allows."
    ),
)

_LOG_LINES = Section("Log lines of the gateway")

LOGGING_SETTINGS = (
    _LOG_LINES.text(
        "seqgate.logging.level", "INFO", choices=("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
    )(
        "The lowest level of the gateway's log lines; above INFO, what users changed is not logged either. "
        "`kafka-configs --entity-type broker-loggers` changes single loggers of a running gateway."
    ),
    _LOG_LINES.text("seqgate.logging.format", "text", choices=("text", "json"))(
        "`text` is one line for people, `json` one object per line with time, level, logger, message and "
        "error."
    ),
    _LOG_LINES.text("seqgate.logging.file", None)(
        "The file that log lines are appended to; without it they go to stderr. A file that log rotation "
        "has renamed is opened again with the next line."
    ),
)

_SHARED_LIMITS = Section("Limits that all clients share", dynamic=True)
_QUOTAS = Section("Client quotas")

LIMIT_SETTINGS = (
    # Limits that all clients share, so that no client can use up the gateway's memory.
    _SHARED_LIMITS.number("seqgate.response.backlog.max.bytes", 268_435_456)(
        "Bytes of unread answers over all connections. A connection counts when its unread answers exceed "
        "`seqgate.connection.response.backlog.bytes`. Beyond the limit the connection with the most unread "
        "bytes is closed."
    ),
    _SHARED_LIMITS.number("seqgate.fetch.session.max.partitions", 1_000_000)(
        "Partitions in all fetch sessions together, and the same number again in all share sessions, unknown "
        "partitions included. Fetch sessions that are idle for two minutes make room for others. Beyond the "
        "limit no fetch session begins, and a fetch session that adds partitions is ended "
        "(FETCH_SESSION_ID_NOT_FOUND); the consumer then sends full requests. A share session that adds "
        "partitions is refused with SHARE_SESSION_LIMIT_REACHED."
    ),
    _SHARED_LIMITS.number("seqgate.group.members.max.bytes", 67_108_864)(
        "Bytes of the members of all groups in one partition of `__consumer_offsets`: their metadata, their "
        "assignments, and 1,000 bytes for each member. Beyond the limit a new member is refused with "
        "GROUP_MAX_SIZE_REACHED."
    ),
    _SHARED_LIMITS.number("seqgate.group.offsets.max", 1_000_000)(
        "Committed offsets in one partition of `__consumer_offsets`, pending offsets of open transactions "
        "included. Beyond the limit a commit that adds offsets is refused with INVALID_COMMIT_OFFSET_SIZE; "
        "a commit that replaces offsets is accepted."
    ),
    # The windows over which the rates of client quotas are measured, and the limits of what is measured.
    _QUOTAS.number("quota.window.num", 11)(
        "Windows over which the rates of client quotas are measured, the present one included."
    ),
    _QUOTAS.number("quota.window.size.seconds", 1)("Length of one window of client quotas."),
    _QUOTAS.number("controller.quota.window.num", 11)(
        "Windows whose unused share `controller_mutation_rate` lets a client save up for a burst."
    ),
    _QUOTAS.number("controller.quota.window.size.seconds", 1)(
        "Length of one window of `controller_mutation_rate`."
    ),
    _QUOTAS.number("seqgate.client.quotas.max", 10_000, dynamic=True)(
        "Entities (users, client ids, pairs of both, addresses) that have quotas. Beyond the limit "
        "AlterClientQuotas refuses a new entity with INVALID_REQUEST."
    ),
    _QUOTAS.number("seqgate.client.quotas.measured.max", 10_000, dynamic=True)(
        "Users, client ids and addresses whose use is measured for each kind of quota. One that was idle "
        "for an hour expires. Beyond the limit the further ones share one measurement for each quota "
        "that applies to them."
    ),
)
