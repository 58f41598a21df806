"""The rows of a run, and the forms in which they are shown."""
