"""What a check is handed: its cases, the kernel's results, the right ones, and their comparison."""
