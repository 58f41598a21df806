// In place of PyTorch's header, without modules, optimizers, data sets and what else takes
// a quarter of the time to compile, unless the source names it.
#pragma once

#if defined(OPSMITH_WHOLE_TORCH)
#include_next <torch/all.h>
#else
#include <torch/autograd.h>
#include <torch/enum.h>
#include <torch/library.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>
#endif
