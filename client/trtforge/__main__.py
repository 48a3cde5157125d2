"""`python -m trtforge`, the same as the command."""

from trtforge.cli.main import run

run()
