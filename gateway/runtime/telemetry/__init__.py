"""The running part of client telemetry (KIP-714): the rules are in `gateway.telemetry`."""
