"""Bytes: models, plans, manifests and logs, and the folders in which they are made before anyone sees them."""
