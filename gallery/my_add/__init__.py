"""The smallest C++ operator."""
