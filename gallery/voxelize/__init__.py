"""`perception::voxelize`."""
