"""What things mean. Pure: no files, no clock, no database."""
