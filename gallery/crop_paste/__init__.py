"""Cutting a rectangle out of an image, and putting one in, by PIL."""
