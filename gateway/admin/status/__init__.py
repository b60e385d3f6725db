"""The state of a running gateway."""
