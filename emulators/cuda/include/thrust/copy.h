// In place of the CUDA toolkit's header.
#include <emulated/thrust/algorithms.h>
