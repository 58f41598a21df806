"""Camera features pooled into bird's-eye-view cells."""
