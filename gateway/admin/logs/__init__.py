"""The newest log lines of a gateway."""
