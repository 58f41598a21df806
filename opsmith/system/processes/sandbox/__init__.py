"""A sandbox by the Linux kernel: namespaces, mounts, limits and a filter of system calls."""
