"""The `opsmith` command: parses arguments, calls the library, and prints results."""


def main() -> None:
    """Run the command line; the entry point of the `opsmith` script."""
    from opsmith.cli.app import app

    app(prog_name="opsmith")
