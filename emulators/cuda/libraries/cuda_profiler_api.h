// In place of the CUDA toolkit's header.
#include <emulated/cuda.h>
