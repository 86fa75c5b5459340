// The answer of a search in words: the schedule with a reason for every line, what it costs, and what was not chosen.
#pragma once

#include "search/search.h"

namespace piper {

/// What would make something fit, if nothing does.
struct WayOut {
  std::string what;      // `--devices 16`, `--batch 256`, `--memory 96GB`
  std::string schedule;  // explained
  Evaluated evaluated;
};
/// The smallest number of devices, the largest batch, and the least memory with which a schedule fits; those that are
/// found in the time given. For a result without a best.
std::vector<WayOut> ways_out(const Problem& problem, const SearchResult& result, const SearchOptions& options);

/// The schedule as text, with a comment on each line that says why.
std::string explained(const Problem& problem, const Evaluated& evaluated);

/// Why a schedule is not the best: what it spends more time on, or that it does not fit.
std::string why_not(const Cluster& cluster, const Evaluated& other, const Evaluated& best);

/// `pp=4 dp=2, 8 microbatches, zb-v, ZeRO 1`; the name of a user's own.
std::string in_short(const Evaluated& evaluated);

/// A page for people; the same for machines: fields are documented in docs/json.md.
std::string print(const Problem& problem, const SearchResult& result, const std::vector<WayOut>& ways_out);
std::string print_json(const Problem& problem, const SearchResult& result, const std::vector<WayOut>& ways_out);

/// Those that none of the others beats in both time and memory, fastest first.
std::vector<const Evaluated*> pareto_front(const SearchResult& result);
/// Time against memory of all that were simulated, with the front and the limit, as SVG.
std::string front_svg(const Problem& problem, const SearchResult& result);

}  // namespace piper
