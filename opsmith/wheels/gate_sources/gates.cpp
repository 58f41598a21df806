// Compiles all gates into one library, since a wheel has one per PyTorch.
#include "autograd_gate.cpp"
#include "recorder.cpp"
