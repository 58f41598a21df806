"""`llm::moe_gating`."""
