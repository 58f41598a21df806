"""`opsmith emulate`."""

from typing import Annotated

import typer

app = typer.Typer()
try:
    from emulators.__main__ import SETTINGS, emulate
except ModuleNotFoundError as error:
    _absent = error

    @app.command("emulate", context_settings={"ignore_unknown_options": True})
    def refuse(_words: Annotated[list[str] | None, typer.Argument()] = None) -> None:
        """Run a whole CUDA program on the CPU, once the emulators are installed."""
        raise _absent
else:
    app.command(context_settings=SETTINGS)(emulate)
