"""The `opsmith` command: parses, calls, prints, and knows nothing else."""


def main() -> None:
    """Run the command line; the entry point of the `opsmith` script."""
    from opsmith.cli.app import app

    app(prog_name="opsmith")
