"""`norms::add_rms_norm` and its backward."""
