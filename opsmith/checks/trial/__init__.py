"""Hand a check its cases, the kernel's results and the right ones, and compare them."""
