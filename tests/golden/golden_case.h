// A golden case: inputs and the exact output, in one text file.
//
//   # The first line says what must hold.
//   run: compile --emit dag
//   --- model             (or --- model @two: the text of models/two.model)
//   …
//   --- schedule
//   …
//   --- expect            (or expect-error: a diagnostic; expect-same-plan: a second schedule that gives the same plan)
//   …
// Timelines: `run: timeline NAME --ranks 4 --emit grid|csv|communication|schedule`, or a section `--- timeline t.csv`.
#pragma once

#include <string>
#include <vector>

namespace piper::golden {

struct Section {
  std::string name;
  std::string text;
  std::string file = {};  // `--- model @two`: the text is tests/golden/models/two.model
};

struct Case {
  std::string comment;  // everything before `run:`
  std::string run;
  std::vector<Section> sections;

  const Section* find(const std::string& name) const;
};

/// Throws std::runtime_error with the reason if the file is not a case.
Case parse_case(const std::string& text);
std::string print_case(const Case& c);

/// What the case's command prints, and whether it is an error. Round trips of all inputs are checked on the way.
struct Outcome {
  bool failed = false;
  std::string text;
};
Outcome run_case(const Case& c);

}  // namespace piper::golden
