// In place of the CUDA toolkit's header.
#pragma once

#include <emulated/cub_device.h>
#include <emulated/cub_memory.h>
#include <emulated/cub_scan.h>
