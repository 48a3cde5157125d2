"""The wire contract, version 1: every shape, event and failure code that crosses HTTP. Nothing here does anything."""
