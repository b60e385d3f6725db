"""Client quotas: which quota applies to a request, and how long the client must wait for what it used."""
