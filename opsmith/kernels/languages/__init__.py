"""The kernel languages, one file each; ``language_registry`` lists them."""
