"""The right results of a call, and the allowed errors."""
