// In place of PyTorch's header: an emulated source runs without Python.
#pragma once

#include <pybind11/pybind11.h>
#include <torch/all.h>
