#include "capture/record/operator_facts.h"

#include <algorithm>
#include <optional>
#include <string>

#include "capture/record/running_statistics.h"

namespace piper {
namespace {

/// `transpose_` changes no value: it is recorded as `transpose`. None: there is no such.
std::optional<c10::OperatorHandle> view_of_in_place(const c10::OperatorHandle& op) {
  if (!op.hasTag(at::Tag::inplace_view)) return {};
  const std::string& name = op.operator_name().name;
  for (const char* overload : {op.operator_name().overload_name.c_str(), "int", "dim"})
    if (const auto found = c10::Dispatcher::singleton().findSchema({name.substr(0, name.size() - 1), overload});
        found && found->schema().arguments().size() == op.schema().arguments().size())
      return found;
  return {};
}

}  // namespace

const OperatorFacts& KnownOperators::facts(const c10::OperatorHandle& op) {
  const auto [found, fresh] = facts_.try_emplace(&op.schema());
  OperatorFacts& facts = found->second;
  if (!fresh) return facts;
  Operator described;
  described.name = full_name(op);
  described.pointwise = op.hasTag(at::Tag::pointwise);
  described.random = op.hasTag(at::Tag::nondeterministic_seeded);
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    described.arguments.push_back(arguments[i].name());
    if (arguments[i].name() == "device") facts.device = static_cast<int>(i);
    const auto* alias = arguments[i].alias_info();
    const bool silently = changes_silently(described.name, arguments[i].name());
    facts.writes.push_back((alias && alias->isWrite()) || silently);
    if (silently) facts.training = op.schema().argumentIndexWithName("training").value_or(-1);
  }
  if (device_.is_meta()) facts.rule = shape_rule(described.name, table_.target);
  facts.decomposes = !facts.rule && op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
                     !op.hasKernelForDispatchKey(c10::DispatchKey::Meta) && !runs_as_one(op);
  const auto& returns = op.schema().returns();
  facts.view = !returns.empty() && std::all_of(returns.begin(), returns.end(), [](const c10::Argument& result) {
    return result.alias_info() && !result.alias_info()->isWrite();
  });
  facts.data_dependent = op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape);
  facts.id = OperatorId(graph_.operators.size());
  graph_.operators.push_back(std::move(described));
  table_.operators.push_back(op);
  if (const auto view = view_of_in_place(op)) {
    const OperatorId shows_as = this->facts(*view).id;
    facts_.at(&op.schema()).shows_as = shows_as;
  }
  return facts_.at(&op.schema());
}

bool KnownOperators::runs_as_one(const c10::OperatorHandle& op) const {
  return !device_.is_meta() &&
         op.hasKernelForDispatchKey(device_.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU);
}

}  // namespace piper
