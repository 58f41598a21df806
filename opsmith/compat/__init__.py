"""Uses of other packages beyond their public interface.

Each file is named after the package, or the part of PyTorch, whose private names it uses. No other
file of opsmith uses a private name of another package, or replaces an attribute of one.
"""
