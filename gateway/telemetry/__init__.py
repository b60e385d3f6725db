"""The data of client telemetry (KIP-714): the configurations of subscriptions, which clients they match, and
the decoding of what clients push.

Pure. `seqgate.gateway.runtime.telemetry` decides what a client pushes and when, and keeps the newest value of
each series.
"""
