// Tensor parallelism: for small models of every kind; and the one device they are compared with.
#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "train_loop/trained.h"

namespace piper {

/// Samples of a step.
constexpr int64_t tp_batch = 16;

/// Configurations of [model] by name, without sizes that all share.
const std::map<std::string, std::string>& tp_models();

struct TpCase {
  std::string name, model;
  int devices, slices;   // slices: microbatches x replicas
  std::string schedule;  // without split
  int microbatches = 4;
  DType dtype = DType::Float64;
  int tokens = 4;

  std::string text() const;
};
void PrintTo(const TpCase& c, std::ostream* out);

TrainableModel model_of(const TpCase& c, int layers = 4);
TrainSettings settings(const TpCase& c);

const std::string tensor_parallel = "shard({layer=*}, along=tp)\n";
const std::string sequence = "shard({layer=*}, along=tp, sequence=on)\n";
const std::string regather = "shard({layer=*}, along=tp, sequence=on, regather=on)\n";
const std::string vocabulary = "shard({}, along=tp, vocabulary=on)\n";
const std::string everything = "shard({}, along=tp, vocabulary=on, sequence=on)\n";
const std::string whole = "place({}, mesh={})\n";

/// One device that runs all slices in turn, with the model recorded as it is for tensor parallelism.
std::string one_device(const TpCase& c);

PreparedTraining prepared(const TrainableModel& model, const std::string& schedule);

/// A model of tokens [samples, 4] in float64 that has neither parameters nor a loss yet; how it is trained.
TrainableModel bare_model(const std::string& name);
at::Tensor add_parameter(TrainableModel& model, const std::string& name, std::vector<int64_t> sizes);
TrainSettings bare_settings();

/// Trains the case and one device, as it is recorded for tensor parallelism and as it is without, and complains of
/// differences.
void expect_equal_to_one_device(const TpCase& c);

}  // namespace piper
