"""Expressions of sizes, the shapes made of them, and conditions on them."""
