#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/bytes.h"
#include "base/overloaded.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

std::string print(const IndexRange& range) {
  return range.low == range.high ? fmt::format("{}", range.low) : fmt::format("{}..{}", range.low, range.high);
}

std::string print(const TagCondition& condition) {
  std::vector<std::string> values;
  for (const IndexRange& range : condition.indices) values.push_back(print(range));
  for (const std::string& word : condition.words) values.push_back(as_name(word));
  const std::string value = condition.any        ? "*"
                            : values.size() == 1 ? values[0]
                                                 : fmt::format("[{}]", fmt::join(values, ", "));
  return fmt::format("{}={}", as_name(condition.tag), value);
}

/// Collects `, key=value` for everything that differs from the default.
class Arguments {
 public:
  explicit Arguments(std::string_view verb) : text_(fmt::format("{}(", verb)) {}
  Arguments& add(std::string argument) {
    text_ += (first_ ? "" : ", ") + argument;
    first_ = false;
    return *this;
  }
  Arguments& add(std::string_view key, const std::string& value, const std::string& usual) {
    return value == usual ? *this : add(fmt::format("{}={}", key, as_name(value)));
  }
  Arguments& add(const DeviceChoice& choice) {
    if (choice.mesh) add("mesh=" + piper::print(*choice.mesh));
    if (!choice.lists.empty()) {
      std::vector<std::string> lists;
      for (const DeviceList& list : choice.lists) lists.push_back(print_devices(list));
      add(fmt::format("devices={}", fmt::join(lists, " | ")));
    }
    if (choice.along.size() == 1) add("along=" + as_name(choice.along[0]));
    if (choice.along.size() > 1) {
      std::vector<std::string> names;
      for (const std::string& axis : choice.along) names.push_back(as_name(axis));
      add(fmt::format("along=[{}]", fmt::join(names, ", ")));
    }
    return *this;
  }
  std::string close() { return text_ + ")"; }

 private:
  std::string text_;
  bool first_ = true;
};

std::string print_place(const Place& place) {
  Arguments out("place");
  out.add(print(place.what)).add(place.devices);
  if (place.stages) out.add(fmt::format("stages={}", place.stages));
  if (!place.at.empty()) out.add(fmt::format("at=[{}]", fmt::join(place.at, ", ")));
  if (place.shape == StageShape::V) out.add("shape=v");
  if (place.shape == StageShape::TwoWay) out.add("shape=two_way");
  if (!place.ranks.empty()) out.add(fmt::format("ranks=[{}]", fmt::join(place.ranks, ", ")));
  if (place.stage) out.add(fmt::format("stage={}", *place.stage));
  const Place usual;
  return out.add("as", place.as, usual.as)
      .add("stream", place.stream, usual.stream)
      .add("transfers", place.transfers, usual.transfers)
      .close();
}

std::string print_replicate(const Replicate& replicate) {
  const Replicate usual;
  Arguments out("replicate");
  out.add(print(replicate.what)).add(replicate.devices).add(fmt::format("zero={}", replicate.zero));
  if (replicate.bucket != usual.bucket) out.add("bucket=" + print_bytes(replicate.bucket));
  out.add("gather_stream", replicate.gather_stream, usual.gather_stream)
      .add("reduce_stream", replicate.reduce_stream, usual.reduce_stream);
  if (replicate.release == Release::Pass) out.add("release=pass");
  if (replicate.release == Release::Step) out.add("release=step");
  return out.close();
}

std::string print_order(const Order& order) {
  Arguments out("order");
  for (const OrderElement& element : order.elements) {
    std::vector<std::string> parts;
    for (const Filter& filter : element.parts) parts.push_back(print(filter));
    out.add(parts.size() == 1 ? parts[0] : fmt::format("[{}]", fmt::join(parts, ", ")));
  }
  return out.close();
}

std::string print_shard(const Shard& shard) {
  Arguments out("shard");
  out.add(print(shard.what)).add(shard.devices);
  std::vector<std::string> seeds;
  for (const ShardSeed& seed : shard.parameters) seeds.push_back(fmt::format("{}: {}", seed.pattern, seed.dim));
  if (!seeds.empty()) out.add(fmt::format("parameters={}", as_name(fmt::format("{}", fmt::join(seeds, ", ")))));
  if (shard.vocabulary) out.add("vocabulary=on");
  if (shard.sequence) out.add("sequence=on");
  if (shard.regather) out.add("regather=on");
  return out.add("stream", shard.stream, Shard{}.stream).close();
}

std::string print_mesh(const Mesh& mesh) {
  Arguments out("mesh");
  for (const MeshAxis& axis : mesh.axes) out.add(fmt::format("{}={}", as_name(axis.name), axis.size));
  return out.close();
}

std::string print_use(const Use& use) {
  Arguments out("use " + as_name(use.timeline));
  if (!use.file.empty()) out.add(as_name(use.file));
  out.add("stages=" + as_name(use.stages)).add("microbatches=" + as_name(use.microbatches));
  if (use.group) out.add(fmt::format("group={}", *use.group));
  if (use.memory_limit) out.add(fmt::format("memory_limit={}", *use.memory_limit));
  if (use.backward == Backward::Whole) out.add("backward=whole");
  return out.close();
}

}  // namespace

std::string print_devices(const DeviceList& devices) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < devices.size();) {
    size_t j = i;
    while (j + 1 < devices.size() && devices[j + 1] == devices[j] + 1) ++j;
    if (j > i + 1) {
      runs.push_back(fmt::format("{}..{}", devices[i], devices[j]));
    } else {
      for (size_t k = i; k <= j; ++k) runs.push_back(fmt::format("{}", devices[k]));
    }
    i = j + 1;
  }
  return fmt::format("[{}]", fmt::join(runs, ", "));
}

std::string print(const Filter& filter) {
  std::vector<std::string> conditions;
  for (const TagCondition& condition : filter.conditions) conditions.push_back(print(condition));
  return fmt::format("{{{}}}", fmt::join(conditions, ", "));
}

std::string print(const DirectiveBody& body) {
  return std::visit(
      overloaded{
          [](const Devices& d) { return fmt::format("devices({})", d.count); },
          [](const Mesh& d) { return print_mesh(d); },
          [](const Split& d) { return fmt::format("split(batch, parts={}, as={})", d.parts, as_name(d.as)); },
          [](const Place& d) { return print_place(d); },
          [](const Replicate& d) { return print_replicate(d); },
          [](const Shard& d) { return print_shard(d); },
          [](const Recompute& d) { return fmt::format("recompute({})", print(d.what)); },
          [](const Prefetch& d) {
            return fmt::format("prefetch({}, distance={})", print(d.what),
                               d.distance ? fmt::format("{}", *d.distance) : "all");
          },
          [](const Order& d) { return print_order(d); },
          [](const Use& d) { return print_use(d); },
      },
      body);
}

std::string print(const Schedule& schedule) {
  std::string out;
  for (const Directive& directive : schedule.directives) out += print(directive.body) + "\n";
  return out;
}

}  // namespace piper
