#include "schedule/json_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <variant>

#include "base/suggest.h"
#include "base/text/json_tree.h"
#include "schedule/argument_table.h"
#include "schedule/fields.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

using Kind = JsonValue::Kind;

constexpr int largest_index = 1'000'000'000;
constexpr double largest_bucket = 9e12;  // MB

const std::vector<std::string> passes = {"F", "B", "BI", "BW"};
const std::vector<std::string> ops = {"order", "place", "replicate", "shard", "split"};

/// Reads one directive object. A field that is null counts as absent, as in the original.
class DirectiveReader {
 public:
  DirectiveReader(const SourceFilePtr& file, const JsonValue& object) : file_(file), object_(object) {}

  Result<Directive> read() {
    PIPER_CHECK(read_op());
    PIPER_CHECK(check_keys());
    const SourceRange where = range(*object_.find("op"));
    PIPER_TRY(DirectiveBody body, read_body());
    return Directive{std::move(body), where, places()};
  }

 private:
  /// The argument of our own text form that says the same as the member `key`.
  const ArgumentRow* argument(const std::string& key) const {
    const auto says = [&](const ArgumentRow& row) { return std::count(row.json.begin(), row.json.end(), key) > 0; };
    const auto found = std::find_if(arguments_.begin(), arguments_.end(), says);
    return found == arguments_.end() ? nullptr : &*found;
  }

  /// The members, by the names that our own text form has for them.
  ArgumentPlaces places() const {
    ArgumentPlaces out;
    for (const JsonValue& member : object_.items) {
      const ArgumentRow* row = argument(member.key);
      const std::string name = member.key == "filter" ? "" : row && row->named ? std::string(row->name) : member.key;
      ArgumentPlace place{name, range(member)};
      for (const JsonValue& item : member.items) place.items.push_back({"", value_range(item)});
      out.all.push_back(std::move(place));
    }
    return out;
  }

  SourceRange range(const JsonValue& value) const { return {file_, value.key_begin, value.end}; }
  SourceRange value_range(const JsonValue& value) const { return {file_, value.begin, value.end}; }

  Diagnostic refuse(SourceRange where, std::string_view message, std::string help) const {
    const std::string prefix = op_.empty() ? "" : op_ + ": ";
    return error(ErrorCode::E107, std::move(where), prefix + std::string(message)).help(std::move(help));
  }
  Diagnostic refuse(const JsonValue& value, std::string_view message, std::string help) const {
    return refuse(value_range(value), message, std::move(help));
  }

  Checked read_op() {
    if (object_.kind != Kind::Object)
      return refuse(object_, "a directive is an object",
                    R"(write {"op": "place", "filter": {"PP": 0}, "devices": [0]})");
    const JsonValue* op = object_.find("op");
    if (!op) return refuse(object_, "the directive has no \"op\"", did_you_mean("op", ops));
    if (op->kind != Kind::String) return refuse(*op, "\"op\" must be a string", did_you_mean("", ops));
    if (std::find(ops.begin(), ops.end(), op->text) == ops.end())
      return refuse(*op, fmt::format("unknown op \"{}\"", op->text), did_you_mean(op->text, ops));
    op_ = op->text;
    arguments_ = arguments_of(op_);
    return Ok{};
  }

  Checked check_keys() const {
    std::vector<std::string> known = {"op"};
    if (op_ == "split") known.push_back("filter");  // which is batch
    for (const ArgumentRow& row : arguments_) known.insert(known.end(), row.json.begin(), row.json.end());
    for (const JsonValue& member : object_.items) {
      if (std::find(known.begin(), known.end(), member.key) != known.end()) continue;
      const bool stream = member.key.ends_with("stream");
      return refuse(range(member), fmt::format("takes no \"{}\"", member.key),
                    stream && op_ == "replicate"                   ? "use \"gather_stream\" and \"reduce_stream\""
                    : stream && (op_ == "place" || op_ == "shard") ? "use \"stream\""
                                                                   : did_you_mean(member.key, known));
    }
    return Ok{};
  }

  Result<DirectiveBody> read_body() {
    if (op_ == "split") return read_split();
    if (op_ == "place") return read_place();
    if (op_ == "replicate") return read_replicate();
    if (op_ == "shard") return read_shard();
    return read_order();
  }

  const JsonValue* find(std::string_view key) const {
    const JsonValue* value = object_.find(key);
    return value && value->kind != Kind::Null ? value : nullptr;
  }

  Result<const JsonValue*> required(std::string_view key, std::string_view example) const {
    if (const JsonValue* value = find(key)) return value;
    return refuse(value_range(object_), fmt::format("needs \"{}\"", key), fmt::format("add \"{}\": {}", key, example));
  }

  /// Text that can be a name in our own text form as well.
  Result<std::string> name(const JsonValue& value) const {
    const bool good = value.kind == Kind::String && !value.text.empty() &&
                      std::none_of(value.text.begin(), value.text.end(), [](unsigned char c) { return c < 0x20; });
    if (good) return value.text;
    return refuse(value, fmt::format("\"{}\" must be a name", value.key), "write a string in double quotes, not empty");
  }

  /// The arguments that are names and have a key: streams.
  template <class Body>
  Checked read_names(Body& body) const {
    Checked out = Ok{};
    for_each_field<Body>([&](const auto& row) {
      if constexpr (std::is_same_v<decltype(row.kind), kind::Name>) {
        const JsonValue* value = row.json.empty() ? nullptr : find(row.json);
        if (!value || !out) return;
        if (auto given = name(*value))
          body.*row.member = *std::move(given);
        else
          out = std::move(given.error());
      }
    });
    return out;
  }

  Result<bool> flag(std::string_view key) const {
    const JsonValue* value = find(key);
    if (!value) return false;
    if (value->kind == Kind::Boolean) return value->boolean;
    return refuse(*value, fmt::format("\"{}\" must be true or false", key), "write it without quotes");
  }

  Result<TagCondition> condition(const JsonValue& member) const {
    TagCondition out;
    out.where = range(member);
    if (member.key == "PASS") {
      if (member.kind != Kind::String || std::find(passes.begin(), passes.end(), member.text) == passes.end())
        return refuse(out.where, "\"PASS\" must be \"F\", \"B\", \"BI\" or \"BW\"",
                      member.kind == Kind::String ? did_you_mean(member.text, passes) : "write it in double quotes");
      out.tag = "pass";
      out.words = {member.text};
      return out;
    }
    out.tag = member.key;
    if (out.tag == "pass" || out.tag == "comm")
      return refuse(out.where, fmt::format("\"{}\" has a meaning of its own and is no tag of the model", out.tag),
                    out.tag == "pass" ? "did you mean \"PASS\"?" : "rename the scope");
    if (out.tag.empty() || std::any_of(out.tag.begin(), out.tag.end(), [](unsigned char c) { return c < 0x20; }))
      return refuse(out.where, "a tag needs a name", "write a name such as \"PP\"");
    if (member.kind == Kind::String && member.text == "*") {
      out.any = true;
      return out;
    }
    if (member.kind != Kind::Integer || member.integer < 0 || member.integer > largest_index)
      return refuse(out.where, fmt::format("\"{}\" must be an index or \"*\"", out.tag),
                    "write a whole number from 0 on, or \"*\" for any index");
    const int index = static_cast<int>(member.integer);
    out.indices = {{index, index}};
    return out;
  }

  Result<Filter> filter(const JsonValue& value) const {
    if (value.kind != Kind::Object)
      return refuse(value, "a filter is an object", R"(write {"PP": 0, "MB": 2, "PASS": "F"}, or {} for everything)");
    Filter out;
    out.where = value_range(value);
    for (const JsonValue& member : value.items) {
      PIPER_TRY(TagCondition next, condition(member));
      out.conditions.push_back(std::move(next));
    }
    return out;
  }

  Result<Filter> required_filter() const {
    PIPER_TRY(const JsonValue* value, required("filter", R"({"PP": 0})"));
    return filter(*value);
  }

  Result<DeviceChoice> devices() const {
    PIPER_TRY(const JsonValue* value, required("devices", "[0, 1]"));
    DeviceChoice out;
    out.where = range(*value);
    DeviceList list;
    for (const JsonValue& item : value->items) {
      if (item.kind != Kind::Integer || item.integer < 0 || item.integer >= most_parts)
        return refuse(item, fmt::format("a device is a whole number from 0 to {}", most_parts - 1),
                      "write \"devices\": [0, 1]");
      list.push_back(static_cast<int>(item.integer));
    }
    if (value->kind != Kind::Array || list.empty())
      return refuse(out.where, "\"devices\" must be a list of at least one device", "write \"devices\": [0, 1]");
    out.lists = {std::move(list)};
    return out;
  }

  Result<DirectiveBody> read_split() const {
    PIPER_TRY(const Filter what, required_filter());
    for (const TagCondition& c : what.conditions)
      if (!c.any) return refuse(c.where, "cuts the whole batch; its filter must be {}", "write \"filter\": {}");
    PIPER_TRY(const JsonValue* dim, required("dim_name", "\"MB\""));
    PIPER_TRY(std::string as, name(*dim));
    if (as == "PASS")
      return refuse(*dim, "\"PASS\" has a meaning of its own", "use another \"dim_name\", such as \"MB\"");
    PIPER_TRY(const JsonValue* parts, required("num_microbatches", "4"));
    if (parts->kind != Kind::Integer || parts->integer < 1 || parts->integer > most_parts)
      return refuse(*parts, fmt::format("\"num_microbatches\" must be a whole number from 1 to {}", most_parts),
                    "1 leaves the batch in one piece");
    return DirectiveBody(Split{static_cast<int>(parts->integer), std::move(as)});
  }

  /// What place, replicate and shard have in common.
  template <class Body>
  Result<Body> read_common() const {
    Body body;
    PIPER_TRY(body.what, required_filter());
    PIPER_TRY(body.devices, devices());
    PIPER_CHECK(read_names(body));
    return body;
  }

  Result<DirectiveBody> read_place() const {
    PIPER_TRY(Place place, read_common<Place>());
    return DirectiveBody(std::move(place));
  }

  Result<DirectiveBody> read_shard() const {
    PIPER_TRY(Shard shard, read_common<Shard>());
    if (shard.stream == "ep") shard.stream.clear();  // the usual one
    return DirectiveBody(std::move(shard));
  }

  Result<DirectiveBody> read_replicate() const {
    PIPER_TRY(Replicate replicate, read_common<Replicate>());
    PIPER_TRY(const bool gradients, flag("shard_grads"));
    PIPER_TRY(const bool parameters, flag("shard_params"));
    if (parameters && !gradients)
      return refuse(range(*find("shard_params")), "\"shard_params\" goes with \"shard_grads\"",
                    "add \"shard_grads\": true (ZeRO-3), or take \"shard_params\" out");
    replicate.zero = parameters ? 3 : gradients ? 2 : 0;
    if (const JsonValue* bucket = find("bucket_size")) {
      const bool number = bucket->kind == Kind::Integer || bucket->kind == Kind::Real;
      if (!number || !(bucket->real * 1e6 >= 1) || bucket->real > largest_bucket)
        return refuse(range(*bucket), "\"bucket_size\" must be a number of MB greater than 0",
                      "write \"bucket_size\": 25 for buckets of 25,000,000 bytes");
      replicate.bucket = std::llround(bucket->real * 1e6);
    }
    return DirectiveBody(std::move(replicate));
  }

  Result<DirectiveBody> read_order() const {
    constexpr std::string_view example = R"([[{"PP": 0, "PASS": "F"}], [{"PP": 0, "PASS": "B"}]])";
    PIPER_TRY(const JsonValue* groups, required("filters", example));
    if (groups->kind != Kind::Array || groups->items.size() < 2)
      return refuse(range(*groups), "\"filters\" must be a list of at least two groups of filters",
                    fmt::format("write \"filters\": {}", example));
    Order order;
    for (const JsonValue& group : groups->items) {
      if (group.kind != Kind::Array || group.items.empty())
        return refuse(group, "a group is a list of at least one filter", R"(write [{"PP": 0, "PASS": "F"}])");
      OrderElement element{{}, value_range(group)};
      for (const JsonValue& item : group.items) {
        PIPER_TRY(Filter next, filter(item));
        element.parts.push_back(std::move(next));
      }
      order.elements.push_back(std::move(element));
    }
    return DirectiveBody(std::move(order));
  }

  const SourceFilePtr& file_;
  const JsonValue& object_;
  std::string op_;
  std::vector<ArgumentRow> arguments_;
};

int turn(const Directive& directive) {
  return std::holds_alternative<Split>(directive.body)       ? 0
         : std::holds_alternative<Place>(directive.body)     ? 1
         : std::holds_alternative<Replicate>(directive.body) ? 2
         : std::holds_alternative<Shard>(directive.body)     ? 3
                                                             : 4;
}

}  // namespace

int implied_devices(const Schedule& schedule) {
  int largest = 0;
  const auto look = [&](const DeviceChoice& choice) {
    for (const DeviceList& list : choice.lists)
      for (const int device : list) largest = std::max(largest, device);
  };
  for (const Directive& directive : schedule.directives) {
    if (const auto* place = std::get_if<Place>(&directive.body)) look(place->devices);
    if (const auto* replicate = std::get_if<Replicate>(&directive.body)) look(replicate->devices);
    if (const auto* shard = std::get_if<Shard>(&directive.body)) look(shard->devices);
  }
  return largest + 1;
}

Result<Schedule> parse_json_schedule(const SourceFilePtr& file) {
  PIPER_TRY(const JsonValue root, parse_json(file));
  if (root.kind != Kind::Array || root.items.empty())
    return error(ErrorCode::E107, {file, root.begin, root.end}, "a schedule is a list of at least one directive")
        .help(R"(start with [{"op": "place", "filter": {}, "devices": [0]}])");
  Schedule schedule;
  for (const JsonValue& item : root.items) {
    PIPER_TRY(Directive directive, DirectiveReader(file, item).read());
    schedule.directives.push_back(std::move(directive));
  }
  PIPER_CHECK(check_backward_halves(schedule));
  std::stable_sort(schedule.directives.begin(), schedule.directives.end(),
                   [](const Directive& a, const Directive& b) { return turn(a) < turn(b); });
  schedule.directives.insert(schedule.directives.begin(), Directive{Devices{implied_devices(schedule)}, {file, 0, 1}});
  return schedule;
}

}  // namespace piper
