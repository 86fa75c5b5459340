// What capture records: every operator call of one forward and backward pass over one slice, in order. Plain data.
//
// A tensor is a storage seen through a layout; two tensors alias exactly if they have the same storage. A call reads
// its arguments and makes its results; a call that writes in place makes no new tensor, so the order of calls is part
// of the graph. Everything is static: sizes are numbers, control flow is what ran. Only `Opaque` arguments and the
// operators themselves need libtorch; they are kept in a table beside the graph (operator_table.h).
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/id.h"
#include "capture/record/annotate.h"
#include "capture/sharding/dimension_labels.h"

namespace piper {

using TensorId = Id<struct TensorTag>;
using StorageId = Id<struct StorageTag>;
using CallId = Id<struct CallTag>;
using OperatorId = Id<struct OperatorTag>;
using ScopeId = Id<struct ScopeInstanceTag>;

struct TensorLayout {
  int8_t element = 0;  // a c10::ScalarType
  int64_t element_bytes = 0;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  friend bool operator==(const TensorLayout&, const TensorLayout&) = default;
};
int64_t element_count(const TensorLayout& layout);
/// One element behind the other, in the order of the dimensions.
bool is_contiguous(const TensorLayout& layout);

enum class TensorKind {
  Result,     // of a call
  Parameter,  // by its qualified name
  Buffer,     // by its qualified name; calls may write it
  Input,      // of the batch
  Constant,   // values that the model states; in the operator table
};

struct GraphTensor {
  TensorKind kind = TensorKind::Result;
  StorageId storage;
  TensorLayout layout;
  CallId producer;   // of a result
  std::string name;  // of a parameter, buffer or input
  int constant = -1;
};

struct GraphStorage {
  int64_t bytes = 0;
  TensorId base;  // the tensor it was made for: all of it
};

struct Operator {
  std::string name;                    // aten::mm, aten::add.Tensor
  std::vector<std::string> arguments;  // their names
  bool pointwise = false;
  bool random = false;
};

/// Nothing was passed; a tensor argument that is not there is a TensorId that is not valid.
struct None {
  friend bool operator==(None, None) = default;
};
/// The device the graph will run on.
struct TargetDevice {
  friend bool operator==(TargetDevice, TargetDevice) = default;
};
/// Something only libtorch understands.
struct Opaque {
  int index = -1;
  friend bool operator==(Opaque, Opaque) = default;
};
/// Where the part of a device begins in a dimension of this size that is sharded; 0 where it is not.
struct PartStart {
  int64_t size = 0;
  friend bool operator==(PartStart, PartStart) = default;
};
struct TensorList {
  std::vector<TensorId> tensors;
  bool optional = false;  // a list of `Tensor?`
  friend bool operator==(const TensorList&, const TensorList&) = default;
};
using Ints = std::vector<int64_t>;
using Bools = std::vector<bool>;
using Argument =
    std::variant<None, bool, int64_t, double, Ints, Bools, Opaque, TargetDevice, PartStart, TensorId, TensorList>;

/// How the random numbers of a call follow from their places (draws.h).
struct Drawn {
  std::vector<Factors> dims;  // of its result
  bool by_slice = false;      // places mean something inside of a slice only: slots of experts
  bool zigzag = false;        // what is sharded are tokens in that order
};

struct Call {
  OperatorId op;
  std::vector<Argument> arguments;  // all of them, defaults filled in
  std::vector<Argument> results;
  std::vector<StorageId> writes;  // storages of arguments that it changes
  int segment = 0;
  bool backward = false;
  CallId forward;              // of a backward call: the forward call whose derivative it is part of
  bool between_nodes = false;  // issued by the autograd engine itself: a sum of gradients
  int random = -1;             // which random call of the pass it is: its numbers depend on it
  Drawn drawn;                 // of a random call
  bool side_stream = false;    // of a body: it may run on one (side_stream.h)
};

/// What becomes of the losses of single tokens, as ATen counts it.
enum class Reduction : int64_t { None, Mean, Sum };

/// A region of the model: one instance of an annotation.
struct ScopeInstance {
  ScopeId parent;
  std::string name;
  int index = 0;  // inside the parent
  ScopeAttributes attributes;
  bool tp = false;  // made by us, around calls whose tensors are divided
};

/// The calls between two borders of scopes.
struct Segment {
  ScopeId scope;  // not valid: outside every annotation
};

/// One contribution to the gradient of a parameter.
struct Contribution {
  TensorId parameter, value;
};

struct OperatorGraph {
  std::vector<Operator> operators;
  std::vector<GraphTensor> tensors;
  std::vector<GraphStorage> storages;
  std::vector<Call> calls;  // in the order they were made: forward, then backward
  std::vector<ScopeInstance> scopes;
  std::vector<Segment> segments;
  std::vector<TensorId> inputs;
  TensorId loss;                     // one number, or what is reported
  bool reports = false;              // the loss, then the metrics (lists last), then the numbers of every sample
  std::vector<std::string> metrics;  // their names
  std::vector<Contribution> gradients;

  const Operator& operator[](OperatorId id) const { return operators[id.index()]; }
  const GraphTensor& operator[](TensorId id) const { return tensors[id.index()]; }
  const GraphStorage& operator[](StorageId id) const { return storages[id.index()]; }
  const Call& operator[](CallId id) const { return calls[id.index()]; }
  const ScopeInstance& operator[](ScopeId id) const { return scopes[id.index()]; }
};

/// Calls `f(TensorId)` for every tensor there is in the argument.
template <class F>
void each_tensor(const Argument& argument, F f) {
  if (const auto* one = std::get_if<TensorId>(&argument)) {
    if (one->valid()) f(*one);
  } else if (const auto* list = std::get_if<TensorList>(&argument)) {
    for (const TensorId id : list->tensors)
      if (id.valid()) f(id);
  }
}
template <class F>
void each_tensor(const std::vector<Argument>& arguments, F f) {
  for (const Argument& argument : arguments) each_tensor(argument, f);
}
/// Replaces every tensor there is by `f(TensorId)`.
template <class F>
void map_tensors(std::vector<Argument>& arguments, F f) {
  for (Argument& argument : arguments) {
    if (auto* one = std::get_if<TensorId>(&argument)) {
      if (one->valid()) *one = f(*one);
    } else if (auto* list = std::get_if<TensorList>(&argument)) {
      for (TensorId& id : list->tensors)
        if (id.valid()) id = f(id);
    }
  }
}

/// By its full name; not valid if the graph does not know it.
OperatorId find_operator(const OperatorGraph& graph, std::string_view name);
/// The same of one that it knows.
OperatorId operator_named(const OperatorGraph& graph, std::string_view name);
/// Results belong to the first call that makes them: after calls were put in or left out.
void find_producers(std::vector<GraphTensor>& tensors, const std::vector<Call>& calls);
/// The argument with this name, or null.
const Argument* find_argument(const OperatorGraph& graph, const Call& call, std::string_view name);
/// All its results show storages of its arguments, and it changes none.
bool is_view(const OperatorGraph& graph, const Call& call);
/// `layer.3.experts.0`, or `model` outside every annotation.
std::string scope_name(const OperatorGraph& graph, ScopeId scope);
/// For people and tests: one line per call.
std::string print(const OperatorGraph& graph);

}  // namespace piper
