"""What an artifact for JAX runs by: copied into it, beside the modules of opsmith that it needs.

These modules import JAX, NumPy and the part of `opsmith.signature` that needs only Python.
"""
