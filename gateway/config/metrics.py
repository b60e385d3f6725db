"""Settings of the metrics that the gateway shows, and of the listener that shows them."""

from __future__ import annotations

from functools import partial
from typing import Final

from gateway.config.listeners import address_complaint
from gateway.config.otlp import OTLP_SETTINGS
from gateway.config.setting import Setting, SettingType, whole_number

_SECTION = "Metrics and health"
_number = partial(whole_number, _SECTION)
METRICS_LISTENER: Final = "seqgate.metrics.listener"

METRICS_SETTINGS = (
    Setting(
        name=METRICS_LISTENER,
        type=SettingType.STRING,
        default=None,
        check=address_complaint,
        section=_SECTION,
        doc="HOST:PORT on which the gateway answers HTTP requests for /metrics, /healthz and /readyz, without a login. Unset: it "
        "does not. With `--workers` each worker takes the next port.",
    ),
    _number(
        "seqgate.metrics.topics.max",
        200,
        "Topics with metrics of their own; the others share one series of each metric. A topic keeps its series.",
        minimum=0,
        maximum=10_000,
    ),
    _number(
        "seqgate.metrics.groups.max",
        200,
        "Groups with a lag of their own, the largest lags first; the others share one series.",
        minimum=0,
        maximum=10_000,
    ),
    Setting(
        name="seqgate.metrics.views.everywhere",
        type=SettingType.BOOLEAN,
        default=False,
        section=_SECTION,
        doc="Whether /view/... also answers where the listener can be reached from other machines. Views show names of topics, groups, "
        "producers and transactional ids, and log lines; the console reads them.",
    ),
    *OTLP_SETTINGS,
)
