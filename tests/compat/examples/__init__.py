"""The projects in `examples/` run as their README says, against a real gateway."""
