"""Run the functions of an exported package of tvm-ffi, which carries a copy of this package."""
