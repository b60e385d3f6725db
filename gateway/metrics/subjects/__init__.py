"""The subjects of the table of metrics: their metrics, and the functions that read them."""
