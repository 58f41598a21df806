"""`llm::linear_cross_entropy` and its backward."""
