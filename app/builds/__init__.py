"""What the service does: take models, decide submits, run attempts, publish engines, recover, and let others watch."""
