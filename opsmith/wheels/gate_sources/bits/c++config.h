// Compile templates into the gate even if the C++ library exports them: each of its releases
// exports more templates, which an older system's library lacks.
#pragma once

#include_next <bits/c++config.h>
#undef _GLIBCXX_EXTERN_TEMPLATE
#define _GLIBCXX_EXTERN_TEMPLATE 0
