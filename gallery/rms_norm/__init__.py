"""`norms::rms_norm` and its backward."""
