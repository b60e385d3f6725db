"""How far groups are behind in a topic."""
