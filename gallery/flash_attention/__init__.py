"""`llm::flash_attention`, its form for sequences of any length, and their backwards."""
