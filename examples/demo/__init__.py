"""The demo: three client libraries send real flights through a proxy that loses acknowledgements, and Spark
counts them.
"""
