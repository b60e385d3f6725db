"""`seqgate metrics`: the metrics of all workers and gateways as one text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from seqgate.gateway.admin.commands import Output, argument, asks
from seqgate.gateway.admin.options import Asker, Opened, gateway_or_gateways
from seqgate.gateway.admin.request import ControlError, Request

if TYPE_CHECKING:
    from seqgate.gateway.admin.operation import LiveGateway

_SAMPLE: Final = re.compile(r"(?P<name>[^{ ]+)(?P<labels>\{)?")
_HAS_NODE: Final = re.compile(r'[^{ ]+\{(?:.*,)?node_id="')
OnlyMetric = Annotated[
    str | None, argument("NAME", "Only metrics whose names begin so. [default: all]", default=None)
]


@asks(gateway_or_gateways)
def metrics(opened: Opened[Asker], name: OnlyMetric = None) -> Output:
    """Show the metrics of all workers and all gateways of a cluster, in the format of Prometheus.

    Each value has the node id of its gateway as the label `node_id`. A gateway without
    seqgate.metrics.listener and seqgate.otlp.endpoint times no requests: its other metrics are shown. With
    --bootstrap the command needs DESCRIBE on the cluster where there is an authorizer.
    """
    with opened as client:
        page = client.ask(MetricsRequest(name or ""))
    return Output(page, united(page.gateways))


def united(gateways: Iterable[GatewayMetrics]) -> Iterator[str]:
    """Yield the lines of one text: each family once, with the values of all gateways."""
    families: dict[str, list[str]] = {}
    for gateway in gateways:
        for line in filter(None, gateway.text.split("\n")):  # a label may have what `splitlines` splits at
            if line.startswith("#"):
                family = families.setdefault(line.split(" ", 3)[2], [])
                if line not in family:
                    family.append(line)
            else:
                family.append(_labelled(line, gateway.node_id))
    for lines in families.values():
        yield from lines


def _labelled(line: str, node_id: int) -> str:
    if _HAS_NODE.match(line):
        return line
    found = _SAMPLE.match(line)
    assert found is not None, line
    labels = f'{{node_id="{node_id}"' + ("," if found["labels"] else "}")
    return found["name"] + labels + line[found.end() :]


# The request for the metrics of a gateway, and what `seqgate metrics --json` prints.


class GatewayMetrics(msgspec.Struct, frozen=True):
    """The metrics of one gateway, in Prometheus's text format."""

    node_id: int
    text: str


class MetricsPage(msgspec.Struct, frozen=True):
    """The metrics of the gateways in `nodes`."""

    gateways: list[GatewayMetrics]
    nodes: list[int]


class MetricsRequest(Request[MetricsPage], tag="metrics"):
    """The metrics whose names begin with `prefix`, in Prometheus's text format."""

    asks_every_worker = True
    is_of_each = True
    network_right = "DESCRIBE"
    rows = "gateways"
    prefix: str = ""


# In the gateway.


async def metrics_of(gateway: LiveGateway, request: MetricsRequest) -> MetricsPage:
    """Return the metrics whose names begin with the prefix. Raises ControlError."""
    if gateway.metrics is None:
        raise ControlError("it shows no metrics over the Kafka protocol")
    text = with_prefix(await gateway.metrics(), request.prefix)
    node_id = gateway.services.node.node_id
    return MetricsPage([GatewayMetrics(node_id, text)], [node_id])


def with_prefix(text: str, prefix: str) -> str:
    """Return the lines about the metrics whose names begin with the prefix."""
    return "\n".join(line for line in text.split("\n") if _named(line).startswith(prefix))


def _named(line: str) -> str:
    return line.split(" ", 3)[2] if line.startswith("#") else line
