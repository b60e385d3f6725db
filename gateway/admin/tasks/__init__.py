"""The background tasks of a gateway."""
