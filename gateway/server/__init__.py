"""Sockets: listeners, connections, and the dispatch of frames to handlers."""
