"""Spread work over processes, and over the machines of a cluster."""
