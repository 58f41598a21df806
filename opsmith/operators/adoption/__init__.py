"""Adopt operators that another library defined."""
