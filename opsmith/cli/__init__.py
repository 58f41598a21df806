"""The `opsmith` command: parses arguments, calls the library, and prints results."""

import sys


def main() -> None:
    """Run the command line; the entry point of the `opsmith` script."""
    if sys.platform != "linux":
        import opsmith

        sys.exit(f"error: {opsmith.elsewhere()}")
    from opsmith.cli.first_process import leave_the_first_process

    leave_the_first_process()
    from opsmith.cli.app import app

    app(prog_name="opsmith")
