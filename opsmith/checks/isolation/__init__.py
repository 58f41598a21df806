"""Processes that may crash or be hostile, and what passes between them."""
