"""Registrations with PyTorch's dispatcher, and the kernels that calls reach."""
