// The parser behind parse_dag: its lines are read by parse_dag_tables.cc and parse_dag_nodes.cc.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text/bounded_reader.h"
#include "ir/training_dag.h"

namespace piper {

class DagParser {
 public:
  DagParser(Scanner scanner, std::shared_ptr<const ModelGraph> model);
  Result<TrainingDag> parse();

 private:
  /// What a line starts with, and who reads the rest of it.
  struct Line {
    std::string_view word;
    Checked (DagParser::*read)();
    int section;  // never decreases from line to line, so that everything is declared before it is used
  };
  static const std::vector<Line>& lines();
  Checked line();
  Checked header();

  // tables
  Checked directive();
  Checked mesh();
  Checked lost();
  Checked shared(SampleAxis axis);
  Checked cp() { return shared(SampleAxis::Cp); }
  Checked tp() { return shared(SampleAxis::Tp); }
  Checked dim();
  Checked stages();
  Checked stream();
  Checked group();
  Checked partition();
  Checked remainder();
  Checked float8();
  Checked residence();
  Checked replicated();
  Checked sharded();
  Checked bucket();
  Checked holder();

  // nodes, and what refers to them
  Checked node();
  Checked bracket();
  Checked prefetch();

  // parts of lines
  Result<NodeOp> op();
  Result<Item> item();
  /// `layer.0 F mb=1`
  Result<NodeTags> tags();
  /// `%2:x0`, `%3/1`
  Checked edge(NodeId to);
  /// `(pp=2, dp=4)`, whose product must be `size`.
  Result<std::vector<MeshAxis>> axes(int size);
  Result<GroupId> group_id();
  Result<BucketId> bucket_id();
  Result<NodeId> node_id();
  /// The residence that a line below it is about.
  Result<Residence*> residence_above(const Token& token);
  template <class Number>
  Checked number_into(Number& into, std::string_view what, int64_t least, int64_t greatest);
  Checked partition_into(std::optional<PartitionId>& into);
  Checked name_into(std::string& into);
  Checked stream_into(StreamId& into);
  Checked release_into(Release& into);
  /// The number of a directive with one of these verbs; no verbs: any directive.
  Checked directive_into(DirectiveId& into, const std::vector<std::string_view>& verbs = {});

  BoundedReader reader_;
  Scanner& in_;  // reader_'s
  const ModelGraph& model_;
  TrainingDag dag_;
  std::vector<SourceRange> node_places_;
  std::vector<DimText> dims_;
  NameTable chunks_, values_, parameters_, streams_;
  size_t node_count_ = 0;
  std::pair<size_t, size_t> last_residence_;  // chunk, index
  int section_ = 0;
};

}  // namespace piper
