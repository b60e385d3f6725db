"""Sends the table of metrics to a collector of OpenTelemetry, by OTLP over HTTP in protobuf. Needs
`seqgate[otlp]`.

    encoding        the values as messages of OTLP
    collector       one export as a request, and what its answer means
    exporter        reads, encodes and sends at each interval, and says once that exports fail

A gateway without `seqgate.otlp.endpoint` imports none of it.
"""
