"""Every client with every way to authenticate itself, with rights and without."""
