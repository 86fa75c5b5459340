// Every device in a job of its own, as processes with one device have it; here they are threads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "train_loop/trained.h"

namespace piper {

struct Ran {
  std::vector<Trained> devices;
  std::vector<std::string> problems;  // by device; empty: none
};
/// `join`: a device's communicator, over one that carries messages of the host.
Ran run_apart(const std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator> host)>& join,
              const TrainableModel& model, const CapturedModel& captured, const std::shared_ptr<const Plan>& plan,
              const TrainSettings& settings);

}  // namespace piper
