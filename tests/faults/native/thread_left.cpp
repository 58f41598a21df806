#include "fault.h"

#include <chrono>
#include <thread>

KERNEL {
  std::thread worker([] { std::this_thread::sleep_for(std::chrono::milliseconds(TWIN(3000, 0))); });
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = 2 * a.x[i];
  TWIN(worker.detach(), worker.join());
}
