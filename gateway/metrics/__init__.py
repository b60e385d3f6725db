"""The counts of a gateway, for Prometheus: the table of metrics, the listener that answers, and the health of
the gateway.

    table           the one list of metrics, by subject; docs/metrics.md is made from it
    subjects/       one module for each subject: its metrics, and the function that reads their values
    exposition      the values as text, in the formats of Prometheus and OpenMetrics
    health          whether the gateway can take writes, and why not
    views           the answers of the control socket that change nothing, as JSON
    listener        the HTTP listener that serves all of that
    otlp/           the export to a collector of OpenTelemetry
    dashboard/      the dashboard for Grafana

A gateway without `seqgate.metrics.listener` and `seqgate.otlp.endpoint` imports none of it.
"""
