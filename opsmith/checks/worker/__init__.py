"""The process that checks run in: a kernel that crashes or hangs takes nothing else down."""
