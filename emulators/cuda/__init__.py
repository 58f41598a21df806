"""Run CUDA on the CPU: every thread, with every access watched.

A source passes through the preprocessor and a parser (``own_code.py``), is rewritten to C++ by a
few edits (``rewriting.py``), is compiled with headers in place of the CUDA toolkit's
(``include/``), and runs on a scheduler of fibers (``runtime/``), a library that all kernels share.
``torch/`` is PyTorch's device "cuda" on that memory, and ``torch_include/`` stands in for PyTorch's
headers that need CUDA.
"""
