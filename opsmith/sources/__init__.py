"""Find and import the files and modules in which users declare operators."""
