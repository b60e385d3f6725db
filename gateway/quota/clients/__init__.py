"""Client quotas: which quota applies to a request, and how long a client that exceeded it must wait."""
