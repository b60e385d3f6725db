"""The running part of client telemetry (KIP-714): the rules are in `seqgate.gateway.telemetry`."""
