#include <emulated/cub.h>
