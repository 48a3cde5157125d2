"""What is done to a request and a model before a builder sees them."""
