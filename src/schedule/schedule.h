// A schedule: a list of directives, each of which rewrites the training DAG. Text form and meaning: docs/schedule.md.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/device_list.h"
#include "base/source.h"
#include "model/shard_seed.h"
#include "model/shards.h"

namespace piper {

constexpr int most_parts = 1'000'000;  // devices, coordinates of a mesh, microbatches

/// Inclusive, as written: `3` is 3..3.
struct IndexRange {
  int low = 0;
  int high = 0;
  bool contains(int index) const { return low <= index && index <= high; }
  friend bool operator==(const IndexRange&, const IndexRange&) = default;
};

/// One condition of a filter: `layer=0..3`, `mb=[0, 2]`, `experts=*`, `pass=F`, `comm=gather`.
struct TagCondition {
  std::string tag;
  bool any = false;
  std::vector<IndexRange> indices;  // for scopes, stages and dims
  std::vector<std::string> words;   // for pass and comm; for others `none`: what has no such tag
  SourceRange where;

  /// Whether it holds for what has this index of the tag, or does not have the tag.
  bool matches(std::optional<int> index) const;
  friend bool operator==(const TagCondition&, const TagCondition&) = default;
};

/// All conditions must hold; `{}` selects everything.
struct Filter {
  std::vector<TagCondition> conditions;
  SourceRange where;

  const TagCondition* find(std::string_view tag) const;
  friend bool operator==(const Filter&, const Filter&) = default;
};

/// Which devices: some lists of them, coordinates of the mesh, or along named axes of the mesh.
struct DeviceChoice {
  std::vector<DeviceList> lists;   // devices=[0, 1] | [2, 3]
  std::optional<Filter> mesh;      // mesh={pp=0}
  std::vector<std::string> along;  // along=dp, along=[edp, ep]
  SourceRange where;
  friend bool operator==(const DeviceChoice&, const DeviceChoice&) = default;
};

struct Devices {
  int count = 0;
  friend bool operator==(const Devices&, const Devices&) = default;
};

struct MeshAxis {
  std::string name;
  int size = 1;
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

/// Devices as a product of axes; the last axis varies fastest.
struct Mesh {
  std::vector<MeshAxis> axes;
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

// The directives. Every argument is a member here and a row in schedule/fields.h, which says how it is written, its
// limits and its meaning.

struct Split {
  int parts = 1;
  std::string as = "mb";
  friend bool operator==(const Split&, const Split&) = default;
};

enum class StageShape { Loop, V, TwoWay };
/// The coordinate of the axis that runs a stage; of TwoWay, for the first direction.
int stage_coordinate(StageShape shape, int stage, int ranks);

struct Place {
  Filter what = {};
  DeviceChoice devices = {};
  int stages = 0;            // 0: everything on one group
  std::vector<int> at = {};  // first instance of each stage after the first
  StageShape shape = StageShape::Loop;
  std::vector<int> ranks = {};    // instead of a shape: the coordinate of each stage
  std::optional<int> stage = {};  // without `stages`: the one stage that all of it is
  std::string as = "stage";       // the tag that stages get
  std::string stream = "compute";
  std::string transfers = "p2p";
  friend bool operator==(const Place&, const Place&) = default;
};

/// The devices are gone. Placements that they belong to go on with the coordinates of an axis at which nothing is lost.
struct Lose {
  DeviceList devices = {};
  std::string along = {};            // none: placements have one axis
  std::optional<int> replicas = {};  // that share a microbatch; none: all that are left
  friend bool operator==(const Lose&, const Lose&) = default;
};

/// When a gathered copy of sharded parameters goes: after each use, after the pass, before the update.
enum class Release { Use, Pass, Step };
constexpr std::array<std::string_view, 3> release_words = {"use", "pass", "step"};

struct Replicate {
  Filter what = {};
  DeviceChoice devices = {};
  int zero = 0;
  int64_t bucket = 25'000'000;  // bytes of gradients reduced together
  std::string gather_stream = "dp";
  std::string reduce_stream = "dp";
  Release release = Release::Use;
  friend bool operator==(const Replicate&, const Replicate&) = default;
};

/// How tokens are divided. On: between what tensor parallelism divides (sequence parallelism). Else everywhere but in
/// attention (context parallelism), which gathers keys and values, or has all tokens of some heads, or has the keys and
/// values of one device after the other.
enum class Sequence { Off, On, Gather, Heads, Ring };
constexpr std::array<std::string_view, 5> sequence_words = {"off", "on", "gather", "heads", "ring"};

/// The devices of each part divide what the selected chunks are made of: experts, or parameters along the dimensions
/// that are named, and what follows from them. Devices that divide parameters work on the same samples.
struct Shard {
  Filter what = {};
  DeviceChoice devices = {};
  std::vector<ShardSeed> parameters = {};  // none: experts where there are, else what is known by its name
  bool vocabulary = false;                 // also the tables of embedding and head, and the loss over them
  Sequence sequence = Sequence::Off;       // whether each device has some tokens of the sequence
  TokenOrder order = TokenOrder::Zigzag;   // which tokens, in context parallelism
  bool regather = false;  // what was gathered of them in forward is gathered again in backward, not kept
  /// Of experts whose rows are sorted: rows for which a device has memory, as a multiple of the balanced load, in parts
  /// of `one_load`. 0: not said.
  int64_t buffer = 0;
  std::string stream = {};  // of its communication; none: ep for experts, tp for parameters
  friend bool operator==(const Shard&, const Shard&) = default;
};

struct Recompute {
  Filter what = {};
  friend bool operator==(const Recompute&, const Recompute&) = default;
};

/// In which numbers the products of linear layers are computed.
enum class Matmul { Float8 };

struct Precision {
  Filter what = {};
  Matmul matmul = Matmul::Float8;
  friend bool operator==(const Precision&, const Precision&) = default;
};

/// Gathers may start when the computation `distance` places before their first user starts; no distance: at once.
struct Prefetch {
  Filter what = {};
  std::optional<int> distance = 1;
  friend bool operator==(const Prefetch&, const Prefetch&) = default;
};

/// One place in an order; several parts may run interleaved.
struct OrderElement {
  std::vector<Filter> parts;
  SourceRange where;
  friend bool operator==(const OrderElement&, const OrderElement&) = default;
};

struct Order {
  std::vector<OrderElement> elements;
  friend bool operator==(const Order&, const Order&) = default;
};

/// Does the backward of a stage run as its two halves or as one pass? Only for use list.
enum class Backward { Split, Whole };

/// A timeline of the library, or of a file, applied to the stages and microbatches that these tags name.
struct Use {
  std::string timeline = {};  // `file`: the one of `file`
  std::string stages = "stage";
  std::string microbatches = "mb";
  std::optional<int> group = {};
  std::optional<int> memory_limit = {};
  Backward backward = Backward::Split;
  std::string file = {};  // relative to the schedule
  friend bool operator==(const Use&, const Use&) = default;
};

using DirectiveBody =
    std::variant<Devices, Mesh, Split, Place, Lose, Replicate, Shard, Recompute, Precision, Prefetch, Order, Use>;

/// Where an argument was written, and the elements of the list it may be.
struct ArgumentPlace {
  std::string name;  // empty: written without one, as filters are
  SourceRange where;
  int64_t numbers = 1;  // it stands for: 4 of `0..3`
  std::vector<ArgumentPlace> items = {};
};

/// The places of all arguments of a directive; none if it was not written as text.
struct ArgumentPlaces {
  std::vector<ArgumentPlace> all;

  const ArgumentPlace* find(std::string_view name) const;
  /// Where something was written never makes it different from its equal.
  friend bool operator==(const ArgumentPlaces&, const ArgumentPlaces&) { return true; }
};

/// The element that the `index`-th number of a list, or of several lists, comes from.
SourceRange place_of_number(const ArgumentPlace& argument, int64_t index);

struct Directive {
  DirectiveBody body;
  SourceRange where;
  ArgumentPlaces arguments = {};
  friend bool operator==(const Directive&, const Directive&) = default;
};

struct Schedule {
  std::vector<Directive> directives;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// `place`, `order`, …: the verb of a directive as written.
std::string_view verb(const DirectiveBody& body);
/// Of a directive as text: `replicate` of `replicate({}, along=dp)`.
std::string_view verb_of(std::string_view text);
std::vector<std::string> all_verbs();
/// The directive with this verb, its arguments at their defaults.
std::optional<DirectiveBody> directive_named(std::string_view verb);

/// Time directives order what structure directives have made.
bool is_time_directive(const DirectiveBody& body);

}  // namespace piper
