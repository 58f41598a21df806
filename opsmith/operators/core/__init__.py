"""The operator class, its arguments and their validation; independent of the dispatcher."""
