// Writes down every operator that a model calls in one thread, as an OperatorGraph.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/diagnostic.h"
#include "capture/record/annotate.h"
#include "capture/record/known_bounds.h"
#include "capture/record/operator_facts.h"
#include "capture/record/recorded_position.h"
#include "capture/record/tensor_interner.h"

namespace piper {

/// Where the recorder sits: below autograd, above every backend. libtorch 2.11 does not use this key.
constexpr c10::DispatchKey capture_key = c10::DispatchKey::Fake;
constexpr c10::DispatchKeySet below_capture(c10::DispatchKeySet::FULL_AFTER, capture_key);
/// Without them nothing is fake.
constexpr c10::DispatchKeySet python_keys({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot});

class Recorder : public ScopeListener {
 public:
  explicit Recorder(c10::Device device = c10::kMeta, c10::DeviceType target = c10::kCPU);

  void enter(std::string_view name, const ScopeAttributes& attributes) override {
    position_.enter_scope(name, attributes);
  }
  void leave() override { position_.leave_scope(); }
  RecordedPosition& position() { return position_; }

  TensorId add_external(const at::Tensor& tensor, TensorKind kind, std::string name);
  /// What a parameter or buffer stands for while the model is recorded: met all the same, it is refused.
  void add_original(const at::Tensor& tensor, std::string name);

  /// The tensor as the graph knows it; values that the model states become constants.
  TensorId lookup(const at::Tensor& tensor);
  void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack);
  /// An operator that passes themselves put into graphs.
  OperatorId intern(const char* name, const char* overload);

  void note_failure();
  [[noreturn]] void refuse(Diagnostic problem);
  /// Where the model is, or where it was when an operator failed.
  std::string where() const;

  OperatorGraph graph;
  OperatorTable table;
  bool allow_any_random = false;      // building a model draws its first weights
  std::optional<Diagnostic> refused;  // kept: other languages make other exceptions of it

 private:
  bool is_fake() const { return !device_.is_meta(); }
  /// Has no values, only a shape.
  bool is_traced(const at::Tensor& tensor) const;
  bool has_traced(const torch::jit::Stack& stack, size_t from) const;
  /// Whether the call is about fake tensors. On meta, factories without a device are.
  bool touches_traced(const OperatorFacts& facts, torch::jit::Stack& stack, size_t base) const;

  Call describe(const c10::OperatorHandle& op, const OperatorFacts& facts, const torch::jit::Stack& stack, size_t base);
  Argument to_argument(const c10::IValue& value);
  /// `equal` of a tensor with itself is true whatever its values.
  bool answered_by_identity(const c10::OperatorHandle& op, torch::jit::Stack& stack, size_t base);
  bool answered_by_bounds(const c10::OperatorHandle& op, torch::jit::Stack& stack, size_t base);
  void run_for_shapes(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::DispatchKeySet keys,
                      torch::jit::Stack& stack);
  /// A tensor that is conjugated or negated only by a mark becomes one whose values are: the graph has no such marks.
  void make_physical(const OperatorFacts& facts, torch::jit::Stack& stack, size_t base);
  /// Results are all of their storages, whatever rules for shapes make them of.
  void fill_storages(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  void add(const c10::OperatorHandle& op, Call call, const torch::jit::Stack& stack);
  void add_results(const c10::OperatorHandle& op, Call& call, const torch::jit::Stack& stack);

  /// Fused attention counts as random even where it is told to drop nothing.
  bool drops_nothing(const Call& call) const;
  /// A random call is numbered; when it runs its numbers are drawn by their places (draws.h).
  void make_reproducible(const c10::OperatorHandle& op, Call& call);

  [[noreturn]] void refuse_data_dependent(const c10::OperatorHandle& op);
  [[noreturn]] void refuse_foreign_change();
  [[noreturn]] void refuse_unknown(std::string_view what);

  /// A tensor without elements is the same wherever it is used: a constant.
  TensorId constant_without_elements(const at::Tensor& tensor);
  TensorId add_constant(const at::Tensor& tensor);

  RecordedPosition position_;
  KnownOperators operators_;
  KnownBounds bounds_;
  TensorInterner tensors_;
  std::unordered_map<c10::StorageImpl*, std::string> originals_;
  const c10::Device device_;  // of fake tensors
  bool running_ = false;
  int random_calls_ = 0;
  std::map<std::pair<c10::ScalarType, std::vector<int64_t>>, TensorId> without_elements_;
  std::string failed_at_;
};

}  // namespace piper
