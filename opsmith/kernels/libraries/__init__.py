"""Load the libraries of kernels that were built here or came in a package."""
