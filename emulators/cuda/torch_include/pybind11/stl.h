// In place of pybind11's header.
#pragma once

#include <pybind11/pybind11.h>
