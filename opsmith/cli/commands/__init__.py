"""The commands, a file for each command or few that belong together.

A file has a `typer.Typer` called `app`, whose commands become opsmith's. An entry point of another
package in the group ``opsmith.commands`` names such an object, too.
"""
