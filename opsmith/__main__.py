"""`python -m opsmith` is the `opsmith` command."""

from opsmith.cli import main

main()
