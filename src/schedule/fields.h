// The arguments of every directive, one row each. Parser, printer, the builder of C++, Python, the JSON of the original
// Piper and the tables of docs/schedule.md follow from these rows.
#pragma once

#include <tuple>

#include "schedule/argument_kinds.h"
#include "schedule/schedule.h"

namespace piper {

/// One argument. Its default is the member's in a default-constructed body.
template <class Body, class Member, class Kind>
struct Field {
  std::string_view name;
  Member Body::*member;
  Kind kind;
  std::string_view meaning;     // as in docs/schedule.md
  std::string_view usual = {};  // the default in words; empty: the value, as it is written
  std::string_view json = {};   // its keys in the JSON of the original Piper, separated by spaces; empty: none
  bool always = false;          // printed even if it has its default; those without a name always are
  bool (*applies)(const Body&) = nullptr;  // if given: it is an argument only where this holds

  constexpr Field defaults_to(std::string_view words) const { return with(&Field::usual, words); }
  constexpr Field in_json(std::string_view keys) const { return with(&Field::json, keys); }
  constexpr Field always_printed() const { return with(&Field::always, true); }
  constexpr Field only_if(bool (*holds)(const Body&)) const { return with(&Field::applies, holds); }

 private:
  template <class Property>
  constexpr Field with(Property Field::*property, Property value) const {
    Field out = *this;
    out.*property = value;
    return out;
  }
};

template <class Body, class Member, class Kind>
constexpr Field<Body, Member, Kind> field(std::string_view name, Member Body::*member, Kind kind,
                                          std::string_view meaning) {
  return {name, member, kind, meaning};
}

/// The rows of a directive, in the order in which they are printed.
template <class Body>
inline constexpr std::nullptr_t fields = nullptr;  // every directive has its own below

/// A word that comes before the arguments, as in split(batch, …).
template <class Body>
inline constexpr std::string_view opening_word = "";
template <>
inline constexpr std::string_view opening_word<Split> = "batch";

template <>
inline constexpr auto fields<Devices> = std::tuple{
    field("count", &Devices::count, kind::Count{1, most_parts}, "number of devices"),
};

template <>
inline constexpr auto fields<Mesh> = std::tuple{
    field("axes", &Mesh::axes, kind::Axes{1, most_parts}, "names and sizes of the axes"),
};

template <>
inline constexpr auto fields<Split> = std::tuple{
    field("parts", &Split::parts, kind::Integer{.low = 1, .high = most_parts, .required = true},
          "number of parts, at least 1")
        .in_json("num_microbatches")
        .always_printed(),
    field("as", &Split::as, kind::Name{}, "the tag").in_json("dim_name").always_printed(),
};

template <>
inline constexpr auto fields<Place> = std::tuple{
    field("what", &Place::what, kind::Selected{"what to place"}, "what to place; may name parts of the batch")
        .in_json("filter"),
    field("devices mesh along", &Place::devices, kind::Where{}, "`along`, one axis, goes with `stages`")
        .in_json("devices"),
    field("stages", &Place::stages, kind::Integer{1, most_parts},
          "number of stages; a multiple of the size of the axis")
        .defaults_to("none"),
    field("at", &Place::at, kind::Integers{},
          "where to cut: the first instance of each stage but the first, `at=[2, 5]` for three stages")
        .defaults_to("even"),
    field("shape", &Place::shape, kind::choice("loop", "v", "two_way"),
          "`loop`: stage s on coordinate s mod p. `v`: back and forth, 0 … p-1, p-1 … 0. `two_way`: p stages; the "
          "second half of the microbatches runs in the opposite direction, on a second copy of the parameters"),
    field("ranks", &Place::ranks, kind::Integers{},
          "instead of a shape: the coordinate of each stage, `ranks=[0, 1, 1, 0]`; any number of stages")
        .defaults_to("none"),
    field("stage", &Place::stage, kind::Integer{0, most_parts - 1},
          "without `stages`: the number of the stage, from 0 without gaps")
        .defaults_to("none"),
    field("as", &Place::as, kind::Name{}, "the tag of the stages"),
    field("stream", &Place::stream, kind::Name{}, "stream of the computations"),
    field("transfers", &Place::transfers, kind::Name{}, "stream on which values leave these devices for others")
        .in_json("stream"),
};

template <>
inline constexpr auto fields<Lose> = std::tuple{
    field("devices", &Lose::devices, kind::Integers{.required = true}, "the devices that are gone").always_printed(),
    field("along", &Lose::along, kind::Name{},
          "the axis of the placements whose coordinates with lost devices drop out")
        .defaults_to("the only axis"),
    field(
        "replicas", &Lose::replicas, kind::Integer{1, most_parts},
        "number of coordinates that share a microbatch; as many such groups as are left take the microbatches in turn")
        .defaults_to("all that are left"),
};

template <>
inline constexpr auto fields<Replicate> = std::tuple{
    field("what", &Replicate::what, kind::Selected{"what to replicate"},
          "which part of the model; parts of the batch and passes are not allowed here (E105)")
        .in_json("filter"),
    field("devices along", &Replicate::devices, kind::Where{}, "which devices of the placement hold equal parameters")
        .in_json("devices"),
    field("zero", &Replicate::zero, kind::Integer{0, 3},
          "what is divided among them: 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters too")
        .in_json("shard_grads shard_params")
        .always_printed(),
    field("bucket", &Replicate::bucket, kind::Bytes{},
          "maximum bytes of gradients that are reduced together, but at least one parameter; buckets fill in the order "
          "of backward. If several directives apply to one parameter (tied weights), the smallest counts")
        .in_json("bucket_size"),
    field("gather_stream", &Replicate::gather_stream, kind::Name{}, "`zero=1` and higher: stream of parameter gathers")
        .in_json("gather_stream"),
    field("reduce_stream", &Replicate::reduce_stream, kind::Name{}, "stream of gradient reductions")
        .in_json("reduce_stream"),
    field("release", &Replicate::release, kind::choice(release_words),
          "`zero=3`: when a gathered copy is freed. `use`: after each chunk that uses it; `pass`: after the last "
          "consecutive chunk of the same pass and microbatch on the device; `step`: at the end of the step's "
          "computations"),
};

template <>
inline constexpr auto fields<Shard> = std::tuple{
    field("what", &Shard::what, kind::Selected{"what to shard"},
          "experts: their region only. Tensor parallelism: chunks with nothing to divide stay as they are")
        .in_json("filter"),
    field("devices along", &Shard::devices, kind::Where{},
          "experts: the devices of the placement that divide them. Tensor parallelism: `along`, the last axis of the "
          "mesh. Context parallelism: `along`, the last axis, or the one before that of tensor parallelism")
        .in_json("devices"),
    field("parameters", &Shard::parameters, kind::Seeds{},
          "tensor parallelism, of a captured model: patterns of names, each with the dimension that is divided")
        .defaults_to("known names"),
    field("vocabulary", &Shard::vocabulary, kind::Flag{},
          "`on`: also the tables of embedding and head, and the loss over the vocabulary"),
    field(
        "sequence", &Shard::sequence, kind::flag_or(sequence_words),
        "`on`: sequence parallelism. Between the divided regions each device has some of the tokens; all-gather and "
        "reduce-scatter replace all-reduce. `gather`, `heads`, `ring`: context parallelism, of the whole model, along "
        "an axis of its own. Each device has some of the tokens; attention gathers keys and values, or has all tokens "
        "of some heads, or passes keys and values on from device to device"),
    field("order", &Shard::order, kind::choice(token_order_words),
          "in context parallelism, which tokens a device has. `zigzag`: blocks r and 2P-1-r of 2P, so that causal "
          "attention is as much work on every device. `contiguous`: block r of P"),
    field("regather", &Shard::regather, kind::Flag{},
          "with `sequence`. `on`: what forward gathered is freed and gathered again in backward"),
    field("buffer", &Shard::buffer, kind::Load{},
          "of [experts without slots](experts.md#expert-parallelism): rows for which a device has memory at once, as a "
          "multiple of the balanced load. More rows go in further rounds")
        .defaults_to("1.5"),
    field("stream", &Shard::stream, kind::Name{}, "stream of the all-to-alls; of the sums and gathers")
        .defaults_to("`ep`, `tp`, `cp`")
        .in_json("stream"),
};

template <>
inline constexpr auto fields<Recompute> = std::tuple{
    field("what", &Recompute::what, kind::Selected{"what to recompute"}, "whose activations are dropped after forward"),
};

template <>
inline constexpr auto fields<Precision> = std::tuple{
    field("what", &Precision::what, kind::Selected{"what to compute so"},
          "which part of the model; parts of the batch and passes are not allowed here (E105)"),
    field("matmul", &Precision::matmul, kind::choice("float8"),
          "the numbers that linear layers multiply: `float8`, rounded to e4m3 with a scale for each row")
        .always_printed(),
};

template <>
inline constexpr auto fields<Prefetch> = std::tuple{
    field("what", &Prefetch::what, kind::Selected{"which gathers to prefetch"}, "which gathers"),
    field("distance", &Prefetch::distance, kind::IntegerOr{"all", 0, most_parts},
          "computations before the first user: 0 is just in time, `all` as soon as the step starts")
        .always_printed(),
};

template <>
inline constexpr auto fields<Order> = std::tuple{
    field("elements", &Order::elements, kind::Elements{}, "filters, and brackets of filters, one after the other")
        .in_json("filters"),
};

inline bool is_from_file(const Use& use) {
  return use.timeline == "file";
}
inline bool is_from_library(const Use& use) {
  return use.timeline != "file";
}

template <>
inline constexpr auto fields<Use> = std::tuple{
    field("file", &Use::file, kind::File{}, "`use file` only: its name").only_if(is_from_file),
    field("stages", &Use::stages, kind::Name{},
          "the tag that `place(…, as=…)` made, or an outermost scope that every chunk belongs to")
        .always_printed(),
    field("microbatches", &Use::microbatches, kind::Name{}, "the tag that `split(…, as=…)` made").always_printed(),
    field("group", &Use::group, kind::Integer{1, most_parts}, "microbatches per group, for the interleaved timelines")
        .defaults_to("the timeline's")
        .only_if(is_from_library),
    field("memory_limit", &Use::memory_limit, kind::Integer{1, most_parts},
          "maximum number of forwards a rank may keep, for `zb-1p`, `zb-2p` and `list`")
        .defaults_to("the timeline's")
        .only_if(is_from_library),
    field("backward", &Use::backward, kind::choice("split", "whole"),
          "for `list`: `whole` runs every backward in one piece")
        .only_if(is_from_library),
};

/// Calls `visit` with every row of the directive.
template <class Body, class Visit>
void for_each_field(Visit visit) {
  std::apply([&](const auto&... row) { (visit(row), ...); }, fields<Body>);
}

}  // namespace piper
