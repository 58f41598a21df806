// In place of PyTorch's header: an emulated source runs without Python.
#pragma once

#include <torch/all.h>
#include <torch/python.h>
