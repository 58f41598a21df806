"""`detection::nms`."""
