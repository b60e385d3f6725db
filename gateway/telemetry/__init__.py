"""The rules of client telemetry (KIP-714): who is asked for which metrics and how often, and what clients
pushed.

Pure: times come in as arguments, results go out as values. `seqgate.gateway.runtime.telemetry` runs these
rules.
"""
