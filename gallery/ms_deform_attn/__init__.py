"""Attention that samples a few positions of feature maps of several sizes."""
