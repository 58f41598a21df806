"""`opsmith emulate`."""

import typer

from emulators.__main__ import SETTINGS, emulate

app = typer.Typer()
app.command(context_settings=SETTINGS)(emulate)
