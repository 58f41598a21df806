"""Connect kernels with hosts by plain structs: what the targets of Python's callers share."""
