// Templates of the C++ library that it exports are compiled in all the same: each release of it
// exports more of them, and an older system's does not have those.
#pragma once

#include_next <bits/c++config.h>
#undef _GLIBCXX_EXTERN_TEMPLATE
#define _GLIBCXX_EXTERN_TEMPLATE 0
