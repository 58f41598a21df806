"""`llm::rope` and its backward."""
