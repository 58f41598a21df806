"""Compilers, CMake, the cache and devices: from sources to a library. Knows no operator."""
