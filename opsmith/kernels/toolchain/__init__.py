"""Compilers, CMake, the cache and devices: build libraries from sources, without any operators."""
