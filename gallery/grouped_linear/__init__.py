"""`llm::grouped_linear` and its backward."""
