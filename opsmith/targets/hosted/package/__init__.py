"""Support arrays of any library in an exported Python package, which carries a copy of this.

These modules import only Python's own modules and NumPy.
"""
