"""The `opsmith` command: parses arguments, calls the library, and prints results."""

import atexit
import gc
import sys


def main() -> None:
    """Run the command line; the entry point of the `opsmith` script."""
    if sys.platform != "linux":
        import opsmith

        sys.exit(f"error: {opsmith.elsewhere()}")
    from opsmith.cli.first_process import leave_the_first_process

    leave_the_first_process()
    try:
        from opsmith.cli.app import app
    except ModuleNotFoundError as error:
        name = str(error.name).partition(".")[0]
        if name not in ("rich", "typer"):
            raise
        sys.exit(
            f"error: the command opsmith needs {name}, which is not installed. Get it: "
            "pip install 'opsmith[build]'"
        )

    # Python would end with a look for garbage among all that torch imports: half a second.
    atexit.register(gc.freeze)
    app(prog_name="opsmith")
