// A fault that is planted on purpose, to see how a job ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace piper {

/// `stop:2:137`: process 2 stops itself before the 137th operation that it runs; `stop:2:joining`: before it joins the
/// others; `stop:2:forming`: when it has joined them and nobody has a plan yet; `stop:2:restoring`: others were lost,
/// and devices are about to get back what they held.
struct PlantedFault {
  enum class Kind {
    Kill,    // SIGKILL
    Stop,    // SIGSTOP
    Throw,   // the operation fails
    Memory,  // it asks for more memory than there is
    Hang,    // the next computation never comes back
    Plan     // the process has another plan than the others, from the beginning
  } kind = Kind::Kill;
  int rank = 0;
  enum class When { Joining, Forming, Restoring, Operation } when = When::Operation;
  int64_t operation = 1;
};

/// Nothing if the text is no fault.
std::optional<PlantedFault> parse_planted_fault(std::string_view text);

}  // namespace piper
