#include <emulated/thrust/iterators.h>
