"""Run the functions of an artifact for JAX, which carries a copy of this package.

These modules import JAX, NumPy and the part of `opsmith.signature` that needs only Python.
"""
