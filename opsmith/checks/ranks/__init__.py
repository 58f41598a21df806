"""Call an operator on many ranks in one process, and compare with its claims."""
