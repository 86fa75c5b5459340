// The numbers and switches of a ModelConfig by name, with their bounds: one table for the file reader and the checks.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/analytic/model_config.h"

namespace piper {

/// Architectures for which a field means something.
enum class AppliesTo {
  All,
  Adjustable,           // all but the reference
  AdjustableAttention,  // with heads of queries, keys and values
  Latent,
  Dense,
  Mixture,
  AdjustableMixture,
  TwoBranch,
};
bool applies(AppliesTo which, Architecture arch);

enum class Need { Required, Optional };

struct IntegerField {
  std::string_view key;
  int64_t ModelConfig::*member;
  int64_t least;
  int64_t most;
  AppliesTo applies_to;
  Need need;
};

struct NumberField {
  std::string_view key;
  double ModelConfig::*member;
  double least;
  double most;
  AppliesTo applies_to;
};

struct SwitchField {
  std::string_view key;
  bool ModelConfig::*member;
  AppliesTo applies_to;
};

std::span<const IntegerField> integer_fields();
std::span<const NumberField> number_fields();
std::span<const SwitchField> switch_fields();

/// All keys of `[model]`: the tables above, and those that are words.
std::vector<std::string> model_keys();

}  // namespace piper
