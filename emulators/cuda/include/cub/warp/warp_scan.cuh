#include <emulated/cub_scan.h>
