"""Parts that all handlers use: the API type, limits of time and size, partition state."""
