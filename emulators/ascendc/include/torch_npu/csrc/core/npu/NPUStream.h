// In place of torch_npu's header: the one device has the stream of the call.
#pragma once

#include <acl/acl.h>
#include <c10/core/Device.h>

namespace c10_npu {

class NPUStream {
 public:
  aclrtStream stream() const { return stream(true); }
  aclrtStream stream([[maybe_unused]] bool waits) const {
    static int of_call;
    return &of_call;
  }
};

inline NPUStream getCurrentNPUStream(c10::DeviceIndex = -1) { return {}; }

}  // namespace c10_npu
