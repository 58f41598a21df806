"""Run the functions of an exported Python module, which carries a copy of this package.

These modules import only Python's own modules and NumPy.
"""
