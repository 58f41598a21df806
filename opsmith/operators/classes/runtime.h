// The C interface of the library that defines TorchBind classes; see runtime.cpp.
#pragma once

#include <cstdint>

// Defines the class that `description` describes.
//
// `replace` not 0: in place of an earlier one of that name, if this library defined it. 0: an equal
// class that is there already stays. Returns null, or why it could not be done.
extern "C" __attribute__((visibility("default"))) const char* opsmith_class_define(
    const char* description, int32_t replace);
