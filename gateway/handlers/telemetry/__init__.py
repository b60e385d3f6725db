"""The handlers of client telemetry (KIP-714)."""
