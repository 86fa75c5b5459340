#include "train/loop/plant_fault.h"

#include <ATen/ops/empty.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <thread>

#include "runtime/device_run.h"

namespace piper {

void strike(const PlantedFault& fault) {
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
}

std::function<void(int device, OpId op)> plant(const PlantedFault& fault, const Plan& plan) {
  return
      [fault, &plan, run = std::make_shared<std::atomic<int64_t>>(0),
       done = std::make_shared<std::atomic<bool>>(fault.kind == PlantedFault::Kind::Plan ||
                                                  fault.when != PlantedFault::When::Operation)](int device, OpId op) {
        const OpKind kind = program_of(plan, device).ops[op].kind;
        if (++*run < fault.operation || (fault.kind == PlantedFault::Kind::Hang && kind != OpKind::Run)) return;
        if (!done->exchange(true)) strike(fault);
      };
}

}  // namespace piper
