"""The files of a data directory, and the one module that opens them."""
