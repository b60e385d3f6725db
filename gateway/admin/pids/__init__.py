"""The blocks of producer ids: those of a running gateway, those in a data directory, and those in Redis."""
