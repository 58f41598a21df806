"""What an exported Python module runs by: copied into it.

These modules import Python's own and NumPy.
"""
