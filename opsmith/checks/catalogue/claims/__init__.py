"""Checks of what a declaration claims of its dimensions, and of what follows from the claims."""
