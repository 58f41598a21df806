"""`graphs::segment_reduce` and its backward."""
