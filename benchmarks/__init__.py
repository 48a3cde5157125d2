"""Measurements and the demonstration: run against the real service, through its public API."""
