"""References in finite fields: their results as residues, which are never rounded.

`reference` runs PyTorch code with residues beside every tensor. `elementwise`, `reductions` and
`products` have the operators that it knows, `arrays` their arithmetic (``native/operations.cpp``,
with the headers that kernels are compiled with), and `verdict` compares results.
``docs/explanation/exact.md`` has the mathematics.
"""
