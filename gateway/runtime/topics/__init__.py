"""Topics, and the metadata log that stores them."""
