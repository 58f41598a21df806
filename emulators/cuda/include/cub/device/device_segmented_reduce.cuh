#include <emulated/cub_device.h>
