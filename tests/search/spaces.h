// Small random problems for the search: models, clusters, numbers of devices.
#pragma once

#include "property/random.h"
#include "search/problem.h"

namespace piper::search_cases {

/// A transformer of a few layers, dense or with experts, tied or not, on a cluster of one or two levels.
Problem random_problem(property::Random& random);

}  // namespace piper::search_cases
