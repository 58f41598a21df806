"""Repeat a case: the command, registered cases, and cases that failed before."""
