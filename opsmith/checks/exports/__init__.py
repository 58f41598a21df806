"""Export a check's operator, run what was exported, and compare the results."""
