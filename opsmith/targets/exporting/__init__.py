"""Export models to artifacts and load them: the code that all targets share, and their protocol."""
