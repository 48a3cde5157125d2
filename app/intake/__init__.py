"""What is learned from a model before any builder sees it. Runs in a child: models come from strangers."""
