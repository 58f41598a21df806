"""What opsmith asks of other packages beyond what they promise.

A file here is named after the package, or the part of PyTorch, whose private names it uses. No
other file of opsmith uses a private name of another package, or replaces an attribute of one.
"""
