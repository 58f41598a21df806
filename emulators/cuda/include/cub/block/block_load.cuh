#include <emulated/cub_memory.h>
