"""Start, serve and watch child processes, in a sandbox where one is asked for."""
