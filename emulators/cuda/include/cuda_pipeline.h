// Copies to shared memory that go on while the thread does (cp.async). They are made when the
// thread waits for them: before, the memory is nobody's.
#pragma once

#include <cuda_pipeline_primitives.h>
