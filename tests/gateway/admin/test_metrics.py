"""The metrics of several gateways as one text."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from seqgate.gateway.admin.metrics import GatewayMetrics, united, with_prefix
from seqgate.gateway.console.metrics.listener import samples

TEXT = """\
# HELP seqgate_connections Connections now.
# TYPE seqgate_connections gauge
seqgate_connections 3.0
# HELP seqgate_requests_total Requests.
# TYPE seqgate_requests_total counter
seqgate_requests_total{api="Produce {v} 9"} 7.0
# HELP seqgate_node_info The gateway.
# TYPE seqgate_node_info gauge
seqgate_node_info{version="1",node_id="7"} 1.0
"""


def test_each_family_comes_once_with_the_values_of_all_gateways() -> None:
    lines = list(united([GatewayMetrics(1, TEXT), GatewayMetrics(2, TEXT)]))
    assert lines[:4] == [
        "# HELP seqgate_connections Connections now.",
        "# TYPE seqgate_connections gauge",
        'seqgate_connections{node_id="1"} 3.0',
        'seqgate_connections{node_id="2"} 3.0',
    ]
    families = text_string_to_metric_families("\n".join(lines) + "\n")
    found = [(sample.name, sample.labels, sample.value) for each in families for sample in each.samples]
    assert found[2:4] == [
        ("seqgate_requests_total", {"node_id": node, "api": "Produce {v} 9"}, 7.0) for node in ("1", "2")
    ]
    assert found[4] == ("seqgate_node_info", {"node_id": "7", "version": "1"}, 1.0)  # it names its own


def test_a_label_may_hold_any_character() -> None:
    group = "".join(("batch", *"\r\x0b\x0c\x1c\x85\u2028"))
    text = with_prefix(
        f'# TYPE seqgate_lag gauge\nseqgate_lag{{group="{group}"}} 3.0\nseqgate_other 1.0\n', "seqgate_lag"
    )
    assert list(united([GatewayMetrics(1, text)]))[1:] == [f'seqgate_lag{{node_id="1",group="{group}"}} 3.0']
    (sample,) = samples(text, ["seqgate_lag"])
    assert (sample.labels["group"], sample.value) == (group, 3.0)
