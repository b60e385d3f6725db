"""`python -m gateway` is `seqgate`."""

from gateway.entry import main

main()
