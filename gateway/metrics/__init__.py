"""The counts of a gateway: for Prometheus, for a collector of OpenTelemetry, and for programs that ask.

    metric          one row of the table of metrics, and the values that are read for it
    subjects/       one module for a few subjects: their metrics, and the functions that read them
    table           the one list of metrics, by subject, and their values as text; makes docs/metrics.md
    health          whether the gateway can take writes, and why not
    listener        the HTTP listener that serves all of that, and answers that change nothing, as JSON
    otlp/           the export to a collector of OpenTelemetry

A gateway without `seqgate.metrics.listener` and `seqgate.otlp.endpoint` imports none of it.
"""
