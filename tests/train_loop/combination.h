// One point of the equality matrix: a model and a way to train it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "timelines/library.h"
#include "train_loop/subjects.h"

namespace piper {

/// Devices = ranks x replicas x devices among which experts are divided.
struct DeviceGrid {
  int ranks = 1, replicas = 1, experts = 1;
  int devices() const { return ranks * replicas * experts; }
  friend auto operator<=>(const DeviceGrid&, const DeviceGrid&) = default;
};

/// What becomes of the backwards of a timeline.
enum class Halves { AsPublished, Split, Whole };
/// What becomes of its overlapped pairs: neighbouring forwards and backwards that may be paired are, or none.
enum class Pairs { AsPublished, None, All };

/// What is divided among replicas, and when a gathered copy comes and goes.
struct Dividing {
  int zero = 0;
  Release release = Release::Use;
  std::string prefetch;  // distance, or empty
};

/// Two short trainings, so that both optimizers, both types of numbers and both ways to issue operations occur.
enum class Legs { AdamWInFloat64, AdamWInFloat32 };

struct Combination {
  std::string kind;      // of the model
  std::string timeline;  // of the library; empty: no order at all
  DeviceGrid grid;
  Dividing dividing;
  bool small_buckets = false;
  bool recompute = false;
  Halves halves = Halves::AsPublished;
  Pairs pairs = Pairs::AsPublished;
  Legs legs = Legs::AdamWInFloat64;

  int stages() const;
  int layers() const;
  int microbatches() const;
  int slices() const { return microbatches() * grid.replicas * grid.experts; }
  std::string describe() const;
  std::string schedule() const;
  /// Slice by slice, last chunk first, on one device: then every sum has the order of the reference.
  bool must_be_ordered() const;
};

/// One without anything that is not named here.
inline Combination bare_combination(const std::string& kind, const std::string& timeline, DeviceGrid grid) {
  Combination out;
  out.kind = kind;
  out.timeline = timeline;
  out.grid = grid;
  return out;
}

/// Why a combination is not trained.
struct Exclusion {
  std::optional<ErrorCode> refused;  // by the compiler; otherwise it is the same as another combination
  std::string reason;
};
std::optional<Exclusion> exclusion(const Combination& combination);

/// Values of the factors of the product, in order.
const std::vector<std::string>& timeline_names();
const std::vector<DeviceGrid>& device_grids();
const std::vector<Dividing>& dividings();

}  // namespace piper
