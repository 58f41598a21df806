"""`llm::swiglu` and its backward."""
