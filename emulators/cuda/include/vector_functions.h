#include <emulated/cuda.h>
