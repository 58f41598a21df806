"""Generate C++ from a signature: argument headers, validation, the frame of adapters."""
