"""Operators that people really use, each a folder: declaration, kernels, where it comes from."""
