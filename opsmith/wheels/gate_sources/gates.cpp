// All gates as one library, since a wheel has one for each PyTorch.
#include "autograd_gate.cpp"
#include "recorder.cpp"
