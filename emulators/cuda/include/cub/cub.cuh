#include <emulated/cub_device.h>
#include <emulated/cub_memory.h>
#include <emulated/cub_scan.h>
