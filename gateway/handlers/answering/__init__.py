"""What all handlers answer with: the API type, limits of time and size, partition state."""
