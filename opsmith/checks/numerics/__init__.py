"""What is right, and how far off a result may be."""
