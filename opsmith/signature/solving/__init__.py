"""Solve for sizes: fit values to them, fold constants, infer the sizes of results."""
