"""What an operator is: its data, its arguments and their validation. Knows no dispatcher."""
