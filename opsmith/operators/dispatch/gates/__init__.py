"""Libraries in C++ that stand before an operator's kernels, so that a call runs no Python."""
