#include <fmt/format.h>

#include <algorithm>

#include "base/suggest.h"
#include "ir/dag_parser.h"
#include "ir/dag_text.h"
#include "ir/verify_dag.h"

namespace piper {
namespace {

bool is_node_name(const Token& token) {
  return token.kind == TokenKind::Word && token.text.starts_with('%');
}

}  // namespace

DagParser::DagParser(Scanner scanner, std::shared_ptr<const ModelGraph> model)
    : reader_(std::move(scanner), ErrorCode::E410), in_(reader_.in), model_(*model) {
  dag_.model = std::move(model);
  for (const Chunk& chunk : model_.chunks) chunks_.add(chunk.name);
  for (const Value& value : model_.values) values_.add(value.name);
  for (const Parameter& parameter : model_.parameters) parameters_.add(parameter.name);
  for (size_t i = 0; in_.peek(i).kind != TokenKind::End; ++i)
    node_count_ += in_.peek(i).first_on_line && is_node_name(in_.peek(i));
}

const std::vector<DagParser::Line>& DagParser::lines() {
  static const std::vector<Line> all = {{"directive", &DagParser::directive, 0},
                                        {"mesh", &DagParser::mesh, 1},
                                        {"lost", &DagParser::lost, 1},
                                        {"cp", &DagParser::cp, 1},
                                        {"tp", &DagParser::tp, 1},
                                        {"dim", &DagParser::dim, 2},
                                        {"stages", &DagParser::stages, 3},
                                        {"stream", &DagParser::stream, 4},
                                        {"group", &DagParser::group, 5},
                                        {"partition", &DagParser::partition, 6},
                                        {"remainder", &DagParser::remainder, 6},
                                        {"float8", &DagParser::float8, 6},
                                        {"residence", &DagParser::residence, 7},
                                        {"replicated", &DagParser::replicated, 7},
                                        {"sharded", &DagParser::sharded, 7},
                                        {"bucket", &DagParser::bucket, 8},
                                        {"holder", &DagParser::holder, 8},
                                        {"%", &DagParser::node, 9},
                                        {"bracket", &DagParser::bracket, 10},
                                        {"prefetch", &DagParser::prefetch, 11}};
  return all;
}

Result<TrainingDag> DagParser::parse() {
  const Token first = in_.peek();
  PIPER_CHECK(header());
  const SourceRange where = in_.range_from(first);
  while (!in_.at_end()) {
    PIPER_CHECK(in_.end_of_line());
    PIPER_CHECK(line());
  }
  if (dag_.nodes.size() != node_count_) return reader_.wrong(where, "the name of a node starts a line that is no node");
  if (auto sound = verify(dag_, node_places_); !sound) {
    Diagnostic problem = std::move(sound.error());
    if (!problem.where) problem.where = where;
    return problem;
  }
  return std::move(dag_);
}

Checked DagParser::line() {
  const Token first = in_.peek();
  const std::vector<Line>& known = lines();
  const auto found = std::find_if(known.begin(), known.end(), [&](const Line& l) {
    return l.word == "%" ? is_node_name(first) : in_.is_word(l.word);
  });
  if (found == known.end()) {
    std::vector<std::string> words;
    for (const Line& l : known) words.emplace_back(l.word);
    return in_.unexpected("a table, a node such as %0, bracket or prefetch").help(did_you_mean(first.text, words));
  }
  if (found->section < section_)
    return error(ErrorCode::E101, in_.range(first), fmt::format("{} stands too late", first.text))
        .help("every table comes before those that refer to it; see docs/dag.md");
  section_ = found->section;
  if (found->word != "%") in_.take();
  return (this->*found->read)();
}

Checked DagParser::header() {
  PIPER_CHECK(in_.expect_word("dag"));
  const Token token = in_.peek();
  PIPER_TRY(const std::string name, in_.name("the model's name"));
  if (name != model_.name)
    return reader_.wrong(in_.range(token), fmt::format("the DAG is of model {}, not {}", name, model_.name))
        .help("give the model that the DAG was printed from");
  PIPER_CHECK(in_.expect_word("devices"));
  PIPER_CHECK(in_.expect("=", "before the number of devices"));
  PIPER_TRY(const int64_t devices, reader_.number("the number of devices", 0, most_devices_in_text));
  dag_.devices = static_cast<int>(devices);
  return Ok{};
}

Result<TrainingDag> parse_dag(const SourceFilePtr& file, std::shared_ptr<const ModelGraph> model) {
  PIPER_TRY(Scanner scanner, Scanner::scan(file));
  return DagParser(std::move(scanner), std::move(model)).parse();
}

}  // namespace piper
