"""Checks of gradients against finite differences and the reference."""
