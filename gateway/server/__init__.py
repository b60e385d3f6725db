"""Sockets: listeners, connections, and the way from a frame to its handler."""
