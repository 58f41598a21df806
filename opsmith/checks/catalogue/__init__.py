"""The checks. Every module in this folder is imported; a new file adds its checks."""
