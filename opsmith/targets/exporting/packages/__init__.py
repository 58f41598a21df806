"""Write Python packages, and copy modules of opsmith into them."""
