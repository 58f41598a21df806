// From here on, numbers are never rounded.
#pragma once

#ifdef OPSMITH_EXACT_HANDLES
using half = opsmith::exact::Half;
using bfloat16_t = opsmith::exact::Bfloat16;
#endif

#define float opsmith::exact::Float
#define double opsmith::exact::Double
