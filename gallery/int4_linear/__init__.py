"""`llm::int4_linear`."""
