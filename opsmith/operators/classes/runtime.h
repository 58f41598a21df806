// The C interface of the library that defines TorchBind classes; see runtime.cpp.
#pragma once

#include <cstdint>

// Defines the class that `description` describes.
//
// `replace` not 0: replaces an earlier class of that name, if this library defined it. 0: keeps an
// existing equal class. Returns null, or the reason of the failure.
extern "C" __attribute__((visibility("default"))) const char* opsmith_class_define(
    const char* description, int32_t replace);
