// The structs of an operator project's tiling, which whoever includes its kernel defines.
#pragma once
