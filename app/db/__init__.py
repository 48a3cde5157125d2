"""Rows: tables, sessions and every query. SQLAlchemy lives here and nowhere else."""
