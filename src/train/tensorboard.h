// Scalars of every step as an event file, which TensorBoard reads: records of protocol buffers with masked CRC-32C
// sums.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "train/data/named_file.h"

namespace piper {

struct NamedScalar {
  std::string name;
  double value = 0;
};

class EventFile {
 public:
  /// A new file in the folder, which is made if it is not there. E108: it cannot be written.
  static Result<EventFile> create(NamedFile folder);
  /// On its way to the disk when the call returns. `seconds`: since 1970. E108: it cannot be written any more.
  Checked add(int64_t step, const std::vector<NamedScalar>& scalars, double seconds);
  const std::string& path() const { return name_.path; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  Checked write(const std::string& record);

  NamedFile name_;
  std::unique_ptr<std::FILE, Close> file_;
};

/// One record: length, its sum, the event, its sum.
std::string event_record(std::string_view event);
/// Events as protocol buffers: the first of a file, and the scalars of a step.
std::string first_event(double seconds);
std::string scalar_event(int64_t step, const std::vector<NamedScalar>& scalars, double seconds);

}  // namespace piper
