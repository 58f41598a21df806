"""A sine by NumPy that writes into its argument."""
