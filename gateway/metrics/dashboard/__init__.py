"""Makes deploy/grafana/seqgate.json, the dashboard for Grafana, from the table of metrics: `python -m
seqgate.gateway.metrics.dashboard`.

    panels          a row, a panel, and the PromQL of its queries
    traffic         the rows that show what clients do, from the overview to transactions
    machinery       the rows that show what the gateway does for them, from the storage to the process
    grafana         the rows as JSON, as Grafana imports it

A panel takes its description from the docs of its metrics, so that both say the same.
"""
