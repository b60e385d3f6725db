"""The small HTTP server."""
