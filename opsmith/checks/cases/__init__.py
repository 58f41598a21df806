"""Draw, describe and store the arguments of calls. Runs no kernel."""
