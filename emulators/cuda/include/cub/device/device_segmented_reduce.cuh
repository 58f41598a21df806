// In place of the CUDA toolkit's header.
#include <emulated/cub_device.h>
