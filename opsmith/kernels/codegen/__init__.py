"""From a signature to C++ text: argument headers, validation, the anatomy of adapters."""
