#include "schedule/argument_table.h"

#include <iterator>
#include <sstream>

#include "base/text/scanner.h"
#include "schedule/print_argument.h"

namespace piper {
namespace {

template <class Kind>
bool is_required(const Kind&) {
  return !kind::is_named<Kind>;
}
bool is_required(const kind::Integer& kind) {
  return kind.required;
}
bool is_required(const kind::Integers& kind) {
  return kind.required;
}

std::vector<std::string> words(std::string_view text) {
  std::istringstream in{std::string(text)};
  return {std::istream_iterator<std::string>(in), {}};
}

std::string in_markdown(const std::string& value) {
  return parse_integer(value) ? value : fmt::format("`{}`", value);
}

template <class Body>
std::vector<ArgumentRow> rows_of(const Body& usual) {
  std::vector<ArgumentRow> out;
  for_each_field<Body>([&](const auto& field) {
    ArgumentRow row{.name = field.name,
                    .kind = field.kind.name,
                    .named = kind::is_named<decltype(field.kind)>,
                    .required = is_required(field.kind),
                    .usual = std::string(field.usual),
                    .meaning = field.meaning,
                    .json = words(field.json)};
    if (!row.required && row.usual.empty()) row.usual = in_markdown(print(field.kind, usual.*field.member));
    out.push_back(std::move(row));
  });
  return out;
}

}  // namespace

std::vector<ArgumentRow> arguments_of(std::string_view verb) {
  const auto body = directive_named(verb);
  return body ? std::visit([](const auto& usual) { return rows_of(usual); }, *body) : std::vector<ArgumentRow>{};
}

}  // namespace piper
