"""Settings of the node itself, its listeners, connections and limits on the wire."""

from __future__ import annotations

from gateway.config.connection_limits import overrides_complaint
from gateway.config.listeners import listener_complaint
from gateway.config.setting import INT_MAX, Setting, SettingType

_NODE = "Node"
_NETWORK = "Listeners and connections"

NODE_SETTINGS = (
    Setting(
        name="node.id",
        type=SettingType.INT,
        default=1,
        minimum=0,
        section=_NODE,
        doc="Number of this node in Metadata, and the owner it writes into the producer-id blocks it claims.",
    ),
    Setting(
        name="broker.rack",
        type=SettingType.STRING,
        default=None,
        section=_NODE,
        doc="Rack of this node, told to clients in Metadata.",
    ),
    Setting(
        name="log.dirs",
        type=SettingType.STRING,
        default="./data",
        section=_NODE,
        check=lambda value: (
            None if value and "," not in str(value) else "Seqgate keeps its data in exactly one directory"
        ),
        doc="The data directory. Exactly one; a second gateway on the same directory is refused.",
    ),
)

NETWORK_SETTINGS = (
    Setting(
        name="listeners",
        type=SettingType.LIST,
        default=("PLAINTEXT://127.0.0.1:9092",),
        section=_NETWORK,
        check=listener_complaint,
        doc="Addresses to listen on, `NAME://HOST:PORT` separated by commas; IPv6 as `[::1]`, port 0 takes a free one. "
        "Every listener speaks plaintext.",
    ),
    Setting(
        name="advertised.listeners",
        type=SettingType.LIST,
        default=None,
        section=_NETWORK,
        check=listener_complaint,
        doc="Addresses told to clients, by listener name, where they differ from `listeners` (behind a proxy or NAT).",
    ),
    Setting(
        name="socket.request.max.bytes",
        type=SettingType.INT,
        default=104857600,
        minimum=1,
        section=_NETWORK,
        doc="Largest request; a connection that announces a larger one is closed.",
    ),
    Setting(
        name="socket.send.buffer.bytes",
        type=SettingType.INT,
        default=-1,
        minimum=-1,
        section=_NETWORK,
        doc="SO_SNDBUF of connections; -1 leaves it to the operating system.",
    ),
    Setting(
        name="socket.receive.buffer.bytes",
        type=SettingType.INT,
        default=-1,
        minimum=-1,
        section=_NETWORK,
        doc="SO_RCVBUF of connections; -1 leaves it to the operating system.",
    ),
    Setting(
        name="socket.listen.backlog.size",
        type=SettingType.INT,
        default=50,
        minimum=1,
        section=_NETWORK,
        doc="Connections the operating system holds until they are accepted.",
    ),
    Setting(
        name="max.connections",
        type=SettingType.INT,
        default=INT_MAX,
        minimum=0,
        dynamic=True,
        section=_NETWORK,
        doc="Connections open at once; more are closed when they arrive.",
    ),
    Setting(
        name="max.connections.per.ip",
        type=SettingType.INT,
        default=INT_MAX,
        minimum=0,
        dynamic=True,
        section=_NETWORK,
        doc="Connections open at once from one address; more are closed when they arrive.",
    ),
    Setting(
        name="max.connections.per.ip.overrides",
        type=SettingType.STRING,
        default="",
        dynamic=True,
        section=_NETWORK,
        check=overrides_complaint,
        doc="Addresses with a limit of their own instead of `max.connections.per.ip`, `ADDRESS:COUNT` separated by commas; "
        "IPv6 as `[::1]:5`. Host names are not looked up.",
    ),
    Setting(
        name="connections.max.idle.ms",
        type=SettingType.LONG,
        default=600000,
        minimum=1,
        section=_NETWORK,
        doc="A connection on which nothing was sent for so long is closed, and one whose request makes hardly any headway "
        "for so long. One that waits for the answer of a long poll is not, unless it has sent more behind it.",
    ),
    Setting(
        name="queued.max.request.bytes",
        type=SettingType.LONG,
        default=134217728,
        minimum=-1,
        section=_NETWORK,
        doc="Bytes of requests in flight on all connections together, as far as they have come; beyond it reading pauses, "
        "nothing fails but requests that make hardly any headway. One whole request may come on top. "
        "-1 sets no limit, which is Kafka's default.",
    ),
    Setting(
        name="seqgate.connection.response.backlog.bytes",
        type=SettingType.INT,
        default=65536,
        minimum=1,
        dynamic=True,
        section=_NETWORK,
        doc="Bytes of answers that may wait for a slow reader; beyond it no more requests are read from the connection. "
        "Fetched records do not count: they wait in their files.",
    ),
    Setting(
        name="seqgate.loopback.congestion.control",
        type=SettingType.STRING,
        default="reno",
        section=_NETWORK,
        doc="TCP congestion control for clients on this machine, as far as the system has it; empty leaves the system's. "
        "No network lies between, so the pacing that some systems do by default (BBR) would only cost: it halves the "
        "speed of fetches.",
    ),
    Setting(
        name="seqgate.connection.max.in.flight.requests",
        type=SettingType.INT,
        default=100,
        minimum=1,
        dynamic=True,
        section=_NETWORK,
        doc="Requests of one connection in progress at once; beyond it no more are read from the connection.",
    ),
    Setting(
        name="seqgate.admin.timeout.ms",
        type=SettingType.INT,
        default=30000,
        minimum=1,
        dynamic=True,
        section=_NETWORK,
        doc="Longest wait of an administrative request for its change to be durable, whatever the request allows.",
    ),
    Setting(
        name="max.incremental.fetch.session.cache.slots",
        type=SettingType.INT,
        default=1000,
        minimum=0,
        section=_NETWORK,
        doc="Fetch sessions kept at once; further consumers send full fetch requests.",
    ),
    Setting(
        name="fetch.max.bytes",
        type=SettingType.INT,
        default=57671680,
        minimum=1024,
        section=_NETWORK,
        doc="Most bytes of records in one fetch answer, whatever the request allows.",
    ),
)
