"""`python -m gateway` is `seqgate`."""

from gateway.cli import main

main()
