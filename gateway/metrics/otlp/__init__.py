"""Sends the table of metrics to a collector by OTLP over HTTP in protobuf. Needs `seqgate[otlp]`."""
