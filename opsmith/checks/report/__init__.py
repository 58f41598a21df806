"""The rows of a run, and the formats of its report."""
