"""Processes that may crash or be hostile, and the communication between them."""
