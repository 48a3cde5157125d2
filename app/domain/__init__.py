"""What things mean: pure functions over the contract's values."""
