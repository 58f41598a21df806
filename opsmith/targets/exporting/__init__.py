"""From a model to an artifact, and back: what all targets share, and their protocol."""
