"""Serve every room: files, scratch folders, locks, processes. It knows no operator."""
