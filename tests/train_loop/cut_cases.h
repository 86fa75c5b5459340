// Schedules that cut, for small models of every kind; and the one device they are compared with.
#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "train_loop/trained.h"

namespace piper {

/// Samples of a step.
constexpr int64_t cut_batch = 16;

/// Configurations of [model] by name, without sizes that all share.
const std::map<std::string, std::string>& cut_models();

struct CutCase {
  std::string name, model;
  int devices, slices;   // slices: microbatches x replicas
  std::string schedule;  // without split
  int microbatches = 4;
  DType dtype = DType::Float64;

  std::string text() const;
};
void PrintTo(const CutCase& c, std::ostream* out);

TrainableModel model_of(const CutCase& c, int layers = 4);
TrainSettings settings(const CutCase& c);

const std::string cut = "cut({layer=*}, along=tp)\n";
const std::string sequence = "cut({layer=*}, along=tp, sequence=on)\n";
const std::string regather = "cut({layer=*}, along=tp, sequence=on, regather=on)\n";
const std::string vocabulary = "cut({}, along=tp, vocabulary=on)\n";
const std::string everything = "cut({}, along=tp, vocabulary=on, sequence=on)\n";
const std::string whole = "place({}, mesh={})\n";

/// One device that runs all slices in turn, with the model recorded as it is for a cut.
std::string one_device(const CutCase& c);

PreparedTraining prepared(const TrainableModel& model, const std::string& schedule);

/// A model of tokens [samples, 4] in float64 that has neither parameters nor a loss yet; how it is trained.
TrainableModel bare_model(const std::string& name);
at::Tensor add_parameter(TrainableModel& model, const std::string& name, std::vector<int64_t> sizes);
TrainSettings bare_settings();

/// Trains the case and one device, as it is recorded for the cut and as it is without, and complains of differences.
void expect_equal_to_one_device(const CutCase& c);

}  // namespace piper
