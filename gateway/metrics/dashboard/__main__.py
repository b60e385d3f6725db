"""Prints the dashboard: `python -m seqgate.gateway.metrics.dashboard > deploy/grafana/seqgate.json`."""

from __future__ import annotations

import sys

from seqgate.gateway.metrics.dashboard.panels import dashboard_json

if __name__ == "__main__":
    sys.stdout.write(dashboard_json())
