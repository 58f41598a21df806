"""Calls of a kernel in a process of its own: bytes go there, bytes come back.

The process that draws cases, knows what is right and compares never runs the kernel. It has a
`caller.Caller`; at the other end is `serving`.
"""
