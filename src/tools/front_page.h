// Time against memory of a search as a page.
#pragma once

#include "search/answer.h"

namespace piper {

/// The picture, and below it the schedules of the front, fastest first.
std::string front_page(const Problem& problem, const SearchResult& result);

}  // namespace piper
