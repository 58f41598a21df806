#include <emulated/thrust/algorithms.h>
