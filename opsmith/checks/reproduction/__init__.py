"""Write Python that shows a failure outside the checks."""
