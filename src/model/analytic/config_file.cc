#include "model/analytic/config_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

#include "base/suggest.h"
#include "model/analytic/builtin_models.h"
#include "model/analytic/check_config.h"
#include "model/analytic/config_fields.h"

namespace piper {
namespace {

constexpr size_t largest_file = 1u << 20;

const std::vector<std::string> step_keys = {"batch",  "sequence",         "weights",  "gradients",
                                            "master", "master_gradients", "optimizer"};

/// toml++ counts lines and code points from 1; a SourceRange counts bytes.
int offset_of(std::string_view text, const toml::source_position& at) {
  size_t offset = 0;
  for (toml::source_index line = 1; line < at.line && offset < text.size(); ++line)
    offset = std::min(text.find('\n', offset), text.size() - 1) + 1;
  const auto continues = [&](size_t i) { return (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80; };
  for (toml::source_index column = 1; column < at.column && offset < text.size() && text[offset] != '\n'; ++column) do
      ++offset;
    while (offset < text.size() && continues(offset));
  return static_cast<int>(offset);
}

SourceRange range_of(const SourceFilePtr& file, const toml::source_region& region) {
  if (!region.begin) return {file, 0, 1};
  const int begin = offset_of(file->text, region.begin);
  const int end = region.end ? offset_of(file->text, region.end) : begin;
  return {file, begin, std::max(begin + 1, end)};
}

/// One table of the file; every question knows its place.
class Section {
 public:
  Section(SourceFilePtr file, std::string_view name, const toml::table& table)
      : file_(std::move(file)), name_(name), table_(table) {}

  bool has(std::string_view key) const { return table_.contains(key); }
  SourceRange place() const { return range_of(file_, table_.source()); }

  /// The value of a key, or the whole table if it is missing.
  SourceRange place(std::string_view key) const {
    const toml::node* node = table_.get(key);
    return node ? range_of(file_, node->source()) : place();
  }

  /// The key that a message is about, or if it is not in the file another one whose value the message shows.
  std::string shown_key(std::string_view key, std::string_view message) const {
    if (has(key)) return std::string(key);
    for (const auto& [other, node] : table_)
      if (message.find(fmt::format("{} = ", other.str())) != std::string_view::npos) return std::string(other.str());
    return std::string(key);
  }

  Diagnostic bad(std::string_view key, std::string message) const {
    return error(ErrorCode::E111, place(key), std::move(message));
  }

  Checked only(const std::vector<std::string>& known) const {
    for (const auto& [key, node] : table_)
      if (std::find(known.begin(), known.end(), key.str()) == known.end())
        return error(ErrorCode::E111, range_of(file_, key.source()),
                     fmt::format("unknown key \"{}\" in {}", key.str(), name_))
            .help(did_you_mean(key.str(), known));
    return Ok{};
  }

  /// The value as a T, if the key is there; `what` completes "KEY must be …".
  template <class T>
  Result<std::optional<T>> get(std::string_view key, std::string_view what) const {
    const toml::node* node = table_.get(key);
    if (!node) return std::optional<T>();
    if (const auto value = node->value_exact<T>()) return std::optional<T>(*value);
    return bad(key, fmt::format("{} must be {}", key, what));
  }

 private:
  SourceFilePtr file_;
  std::string_view name_;
  const toml::table& table_;
};

// ---- [model]

Checked read_integers(const Section& section, ModelConfig& config) {
  for (const IntegerField& field : integer_fields()) {
    PIPER_TRY(const auto value, section.get<int64_t>(field.key, "a whole number"));
    if (!value) continue;
    if (*value < field.least || *value > field.most)
      return section.bad(field.key,
                         fmt::format("{} = {} must be between {} and {}", field.key, *value, field.least, field.most));
    config.*field.member = *value;
  }
  return Ok{};
}

Checked read_numbers(const Section& section, ModelConfig& config) {
  for (const NumberField& field : number_fields()) {
    if (const auto whole = section.get<int64_t>(field.key, "a number"); whole && *whole) {
      config.*field.member = static_cast<double>(**whole);
      continue;
    }
    PIPER_TRY(const auto value, section.get<double>(field.key, "a number"));
    if (value) config.*field.member = *value;
  }
  return Ok{};
}

Checked read_switches(const Section& section, ModelConfig& config) {
  for (const SwitchField& field : switch_fields()) {
    PIPER_TRY(const auto value, section.get<bool>(field.key, "true or false"));
    if (value) config.*field.member = *value;
  }
  return Ok{};
}

/// One of a few words.
template <class T>
Checked read_word(const Section& section, std::string_view key, const std::vector<std::pair<std::string, T>>& words,
                  T& into) {
  PIPER_TRY(const auto text, section.get<std::string>(key, "a text in quotes"));
  if (!text) return Ok{};
  std::vector<std::string> known;
  for (const auto& [word, value] : words) {
    if (word == *text) into = value;
    known.push_back(word);
  }
  if (std::find(known.begin(), known.end(), *text) != known.end()) return Ok{};
  return section.bad(key, fmt::format("unknown {} \"{}\"", key, *text)).help(did_you_mean(*text, known));
}

/// Where the configuration starts from: the architecture named by `arch`, else the built-in model named by `name`.
Result<ModelConfig> starting_point(const Section& section) {
  PIPER_TRY(const auto arch, section.get<std::string>("arch", "a text in quotes"));
  PIPER_TRY(const auto name, section.get<std::string>("name", "a text in quotes"));
  if (!arch && !name)
    return section.bad("arch", "[model] needs arch, or the name of a built-in model")
        .help("for example arch = \"llama3\", or name = \"Qwen3-8B\"");
  if (!arch) return builtin_model(*name, section.place("name"));
  const auto found = architecture_named(*arch);
  if (!found)
    return error(ErrorCode::E112, section.place("arch"), fmt::format("unknown architecture \"{}\"", *arch))
        .help(did_you_mean(*arch, architecture_names()));
  ModelConfig config = usual_config(*found);
  config.name = name.value_or("");
  return config;
}

/// The diagnostic at the place of the key it is about.
Diagnostic at_key(const Section& section, ConfigProblem problem) {
  const std::string key = section.shown_key(problem.key, problem.message);
  return section.bad(key, std::move(problem.message)).help(std::move(problem.help));
}

Result<ModelConfig> read_model(const Section& section) {
  PIPER_CHECK(section.only(model_keys()));
  PIPER_TRY(ModelConfig config, starting_point(section));
  PIPER_CHECK(read_integers(section, config));
  PIPER_CHECK(read_numbers(section, config));
  PIPER_CHECK(read_switches(section, config));
  PIPER_CHECK(
      read_word<Activation>(section, "act", {{"swiglu", Activation::Swiglu}, {"gelu", Activation::Gelu}}, config.act));
  PIPER_CHECK(
      read_word<Norm>(section, "norm", {{"rmsnorm", Norm::RmsNorm}, {"layernorm", Norm::LayerNorm}}, config.norm));
  if (auto problem = find_problem(config)) {
    Diagnostic diagnostic = at_key(section, std::move(*problem));
    if (section.has("arch") && section.has("name") && builtin_model(config.name))
      return std::move(diagnostic).help(fmt::format("leave out arch to start from the built-in {}", config.name));
    return diagnostic;
  }
  return config;
}

// ---- [step]

Result<std::optional<DType>> read_dtype(const Section& section, std::string_view key) {
  PIPER_TRY(const auto text, section.get<std::string>(key, "a dtype in quotes"));
  if (!text) return std::optional<DType>();
  if (const auto found = dtype_named(*text)) return found;
  return section.bad(key, fmt::format("unknown dtype \"{}\"", *text)).help(did_you_mean(*text, dtype_names()));
}

/// A dtype, or "none" for no copy at all.
Checked read_copy(const Section& section, std::string_view key, std::optional<std::optional<DType>>& into) {
  if (const auto text = section.get<std::string>(key, ""); text && *text && **text == "none") {
    into = std::optional<DType>();
    return Ok{};
  }
  PIPER_TRY(const auto dtype, read_dtype(section, key));
  if (dtype) into = dtype;
  return Ok{};
}

Result<StepOverrides> read_step(const Section& section) {
  StepOverrides step;
  PIPER_CHECK(section.only(step_keys));
  PIPER_TRY(step.batch, section.get<int64_t>("batch", "a whole number"));
  PIPER_TRY(step.sequence, section.get<int64_t>("sequence", "a whole number"));
  PIPER_TRY(step.weights, read_dtype(section, "weights"));
  PIPER_TRY(step.gradients, read_dtype(section, "gradients"));
  PIPER_CHECK(read_copy(section, "master", step.master));
  PIPER_CHECK(read_copy(section, "master_gradients", step.master_gradients));
  Optimizer optimizer = Optimizer::AdamW;
  PIPER_CHECK(read_word<Optimizer>(
      section, "optimizer", {{"sgd", Optimizer::Sgd}, {"momentum", Optimizer::Momentum}, {"adamw", Optimizer::AdamW}},
      optimizer));
  if (section.has("optimizer")) step.optimizer = optimizer;
  return step;
}

// ---- the file

Result<toml::table> parse_toml(const SourceFilePtr& file) {
  if (file->text.size() > largest_file)
    return error(
        ErrorCode::E113, {file, 0, 1},
        fmt::format("the file has {} bytes; the limit for a configuration is {}", file->text.size(), largest_file));
  try {
    return toml::parse(file->text, file->name);
  } catch (const toml::parse_error& problem) {
    return error(ErrorCode::E111, range_of(file, problem.source()), fmt::format("not TOML: {}", problem.description()))
        .help("texts stand in double quotes, numbers and true or false do not");
  }
}

Result<const toml::table*> find_table(const SourceFilePtr& file, const toml::table& root, std::string_view name) {
  const toml::node* node = root.get(name);
  if (!node) return static_cast<const toml::table*>(nullptr);
  if (const toml::table* table = node->as_table()) return table;
  return error(ErrorCode::E111, range_of(file, node->source()), fmt::format("{} must be a table", name))
      .help(fmt::format("write [{}] on a line of its own", name));
}

}  // namespace

Result<ConfigFile> parse_config(const SourceFilePtr& file) {
  PIPER_TRY(const toml::table root, parse_toml(file));
  PIPER_CHECK(Section(file, "the file", root).only({"model", "step"}));
  PIPER_TRY(const toml::table* model_table, find_table(file, root, "model"));
  PIPER_TRY(const toml::table* step_table, find_table(file, root, "step"));
  if (!model_table)
    return error(ErrorCode::E111, {file, 0, 1}, "the configuration has no [model]")
        .help("for example [model] with name = \"Qwen3-8B\"");
  ConfigFile config;
  const Section model(file, "[model]", *model_table);
  config.model_table = model.place();
  PIPER_TRY(config.model, read_model(model));
  const toml::table nothing;
  const Section step(file, "[step]", step_table ? *step_table : nothing);
  PIPER_TRY(config.step, read_step(step));
  if (auto problem = find_problem(config.model, resolve(config.step, config.model))) {
    const Section& culprit = step_table ? step : model;
    return at_key(culprit, std::move(*problem));
  }
  return config;
}

}  // namespace piper
