"""Small projects that show how to use Seqgate. README.md lists them."""
