"""Write Python packages, and carry modules of opsmith into them."""
