"""HTTP in, HTTP out. Decides nothing."""
