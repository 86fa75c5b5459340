#include "train/loop/plant_fault.h"

#include <ATen/ops/empty.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <thread>

namespace piper {

std::function<void(int device, int op)> plant(const PlantedFault& fault) {
  return [fault, run = std::make_shared<std::atomic<int64_t>>(0)](int, int) {
    if (++*run != fault.operation || fault.kind == PlantedFault::Kind::Plan) return;
    std::fprintf(stderr, "piper: a planted fault in rank %d\n", fault.rank);
    std::fflush(stderr);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // for the message to be on its way
    switch (fault.kind) {
      case PlantedFault::Kind::Kill:
        std::raise(SIGKILL);
        break;
      case PlantedFault::Kind::Stop:
        std::raise(SIGSTOP);
        break;
      case PlantedFault::Kind::Throw:
        throw std::runtime_error("a planted fault");
      case PlantedFault::Kind::Memory:
        at::empty({int64_t{1} << 58}, c10::TensorOptions().dtype(c10::kFloat));
        break;
      case PlantedFault::Kind::Hang:
        while (true) std::this_thread::sleep_for(std::chrono::hours(1));
      case PlantedFault::Kind::Plan:
        break;
    }
  };
}

}  // namespace piper
