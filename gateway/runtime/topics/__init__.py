"""Topics and the metadata log they are stored in."""
