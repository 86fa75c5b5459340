#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "schedule/fields.h"
#include "schedule/json_schedule.h"
#include "schedule/schedule_text.h"
#include "schedule/shard_target.h"

namespace piper {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// Writes one directive, or says what in it the format has no words for.
class DirectiveWriter {
 public:
  explicit DirectiveWriter(const Directive& directive) : where_(directive.where), verb_(verb(directive.body)) {}

  Result<OrderedJson> write(const Split& split) const {
    if (split.as == "PASS")
      return refuse(where_, "\"PASS\" has a meaning of its own there", "use another name after as=");
    return OrderedJson{
        {"op", "split"}, {"filter", OrderedJson::object()}, {"dim_name", split.as}, {"num_microbatches", split.parts}};
  }

  Result<OrderedJson> write(const Place& place) const {
    if (place.stages > 0 || !place.at.empty() || place.stage)
      return refuse(where_, fmt::format("{}=… cannot be written", place.stage ? "stage" : "stages"),
                    "place scopes on lists of devices: place({layer=0}, devices=[0])");
    if (place.stream != Place{}.stream)
      return refuse(where_, fmt::format("computations on the stream \"{}\" cannot be written", place.stream),
                    "take out stream=…; \"stream\" there is that of transfers");
    return begin(place);
  }

  Result<OrderedJson> write(const Replicate& replicate) const {
    if (replicate.zero == 1)
      return refuse(where_, "zero=1 cannot be written", "use zero=0, or zero=2, which also shards the gradients");
    if (replicate.release != Release::Use)
      return refuse(where_, "release=… cannot be written", "take it out: gathered copies go after each use");
    const double megabytes = static_cast<double>(replicate.bucket) / 1e6;
    if (std::llround(megabytes * 1e6) != replicate.bucket)
      return refuse(where_, "a bucket of this size cannot be written exactly", "use a round number of MB");
    PIPER_TRY(OrderedJson out, begin(replicate));
    out["shard_grads"] = replicate.zero >= 2;
    out["shard_params"] = replicate.zero == 3;
    if (replicate.bucket % 1'000'000 == 0)
      out["bucket_size"] = replicate.bucket / 1'000'000;
    else
      out["bucket_size"] = megabytes;
    return out;
  }

  Result<OrderedJson> write(const Shard& shard) const {
    if (names_parameters(shard))
      return refuse(where_, "only experts can be sharded", "leave it out, or keep this schedule in the text form");
    PIPER_TRY(OrderedJson out, begin(shard));
    if (shard.stream.empty()) out["stream"] = "ep";
    return out;
  }

  Result<OrderedJson> write(const Order& order) const {
    OrderedJson groups = OrderedJson::array();
    for (const OrderElement& element : order.elements) {
      OrderedJson group = OrderedJson::array();
      for (const Filter& part : element.parts) {
        PIPER_TRY(OrderedJson one, filter(part));
        group.push_back(std::move(one));
      }
      groups.push_back(std::move(group));
    }
    return OrderedJson{{"op", "order"}, {"filters", std::move(groups)}};
  }

  Result<OrderedJson> write(const Mesh&) const {
    return no_words("use devices(n), and devices=[…] in every directive");
  }
  Result<OrderedJson> write(const Lose&) const {
    return no_words("leave the lost devices out of every directive, or keep this schedule in the text form");
  }
  Result<OrderedJson> write(const Recompute&) const {
    return no_words("leave it out, or keep this schedule in the text form");
  }
  Result<OrderedJson> write(const Precision&) const {
    return no_words("leave it out, or keep this schedule in the text form");
  }
  Result<OrderedJson> write(const Prefetch&) const {
    return no_words("leave it out, or keep this schedule in the text form");
  }
  Result<OrderedJson> write(const Use&) const {
    return no_words("write the orders it stands for; --emit schedule shows them");
  }
  Result<OrderedJson> write(const Devices&) const { return OrderedJson(); }

 private:
  Diagnostic refuse(const SourceRange& where, std::string_view what, std::string help) const {
    return error(ErrorCode::E107, where ? where : where_, fmt::format("{}: {} in the JSON format", verb_, what))
        .help(std::move(help));
  }
  Diagnostic no_words(std::string help) const { return refuse(where_, "does not exist", std::move(help)); }

  /// Filter, devices and all names of place, replicate and shard.
  template <class Body>
  Result<OrderedJson> begin(const Body& body) const {
    PIPER_CHECK(check_words(body));
    if (body.devices.mesh || !body.devices.along.empty())
      return refuse(body.devices.where, "axes of a mesh cannot be written", "give lists of devices: devices=[0, 1]");
    if (body.devices.lists.size() != 1)
      return refuse(body.devices.where, "several lists of devices cannot be written",
                    "write one directive for each list, with filters that exclude each other");
    PIPER_TRY(OrderedJson selected, filter(body.what));
    OrderedJson out{{"op", verb_}, {"filter", std::move(selected)}, {"devices", body.devices.lists[0]}};
    for_each_field<Body>([&](const auto& row) {
      if constexpr (std::is_same_v<decltype(row.kind), kind::Name>)
        if (!row.json.empty()) out[std::string(row.json)] = body.*row.member;
    });
    return out;
  }

  /// Every argument that is given has a key.
  template <class Body>
  Checked check_words(const Body& body) const {
    const Body usual;
    std::string_view without;
    for_each_field<Body>([&](const auto& row) {
      if (row.json.empty() && without.empty() && !(body.*row.member == usual.*row.member)) without = row.name;
    });
    if (without.empty()) return Ok{};
    return refuse(where_, fmt::format("{}=… cannot be written", without),
                  "leave it out, or keep this schedule in the text form");
  }

  Result<OrderedJson> filter(const Filter& filter) const {
    OrderedJson out = OrderedJson::object();
    for (const TagCondition& condition : filter.conditions) PIPER_CHECK(add(condition, out));
    return out;
  }

  Checked add(const TagCondition& condition, OrderedJson& out) const {
    const auto cannot = [&](std::string help) {
      return refuse(condition.where, fmt::format("{} cannot be written", print(Filter{{condition}, {}})),
                    std::move(help));
    };
    if (condition.tag == "comm" || condition.tag == "PASS") return cannot("select computations by scope, dim and pass");
    if (condition.tag == "pass") {
      if (condition.any || condition.words.size() != 1 || condition.words[0] == "R")
        return cannot("name one of F, B, BI and BW, or leave pass out");
      out["PASS"] = condition.words[0];
    } else if (condition.any) {
      out[condition.tag] = "*";
    } else if (condition.indices.size() == 1 && condition.indices[0].low == condition.indices[0].high) {
      out[condition.tag] = condition.indices[0].low;
    } else {
      return cannot("write one directive for each index, or * for all");
    }
    return Ok{};
  }

  SourceRange where_;
  std::string verb_;
};

Checked check_devices(const Schedule& schedule) {
  for (const Directive& directive : schedule.directives) {
    const auto* devices = std::get_if<Devices>(&directive.body);
    const int needed = implied_devices(schedule);
    if (devices && devices->count < needed)
      return error(ErrorCode::E107, directive.where,
                   fmt::format("devices: there are {}, but device {} is used", devices->count, needed - 1))
          .help(fmt::format("write devices({})", needed));
  }
  return Ok{};
}

}  // namespace

Result<std::string> print_json_schedule(const Schedule& schedule) {
  PIPER_CHECK(check_devices(schedule));
  std::string out;
  for (const Directive& directive : schedule.directives) {
    const DirectiveWriter writer(directive);
    PIPER_TRY(const OrderedJson json, std::visit([&](const auto& body) { return writer.write(body); }, directive.body));
    if (json.is_null()) continue;  // devices: implied
    try {
      out += (out.empty() ? "  " : ",\n  ") + json.dump();
    } catch (const OrderedJson::type_error&) {
      return error(ErrorCode::E107, directive.where, fmt::format("{}: a name is not UTF-8", verb(directive.body)))
          .help("JSON is UTF-8; rename it");
    }
  }
  PIPER_CHECK(check_backward_halves(schedule));
  return "[\n" + out + "\n]\n";
}

}  // namespace piper
