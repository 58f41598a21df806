// In place of the C library's, which came with 2.32: a gate that always counts atomically needs
// nothing of it.
#pragma once

static constexpr char __libc_single_threaded = 0;
