"""`llm::paged_attention`."""
