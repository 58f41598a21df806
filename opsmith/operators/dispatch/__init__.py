"""What PyTorch's dispatcher is told of an operator, and the kernels that calls reach."""
