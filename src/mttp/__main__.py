"""`python -m mttp` is the `mttp` command."""

from mttp.cli import main

main()
