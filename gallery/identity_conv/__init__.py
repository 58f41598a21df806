"""The operator that changes nothing."""
