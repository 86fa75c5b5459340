#include "calibrate/measured_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include "base/suggest.h"

namespace piper {
namespace {

constexpr std::array<std::string_view, 10> columns = {"set",     "model", "schedule", "batch",   "sequence",
                                                      "seconds", "costs", "dtype",    "product", "bytes"};

struct Cell {
  std::string_view text;
  SourceRange where;
};

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r");
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

/// Cells of every line that is neither empty nor a comment.
std::vector<std::vector<Cell>> cells_of(const SourceFilePtr& file) {
  std::vector<std::vector<Cell>> lines;
  const std::string_view text = file->text;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (!trimmed(line).empty() && !trimmed(line).starts_with('#')) {
      std::vector<Cell>& cells = lines.emplace_back();
      for (size_t at = 0; at <= line.size();) {
        const size_t comma = std::min(line.find(',', at), line.size());
        cells.push_back({trimmed(line.substr(at, comma - at)),
                         {file, static_cast<int>(begin + at), static_cast<int>(begin + comma)}});
        at = comma + 1;
      }
    }
    begin = end + 1;
  }
  return lines;
}

Result<std::vector<std::string>> header_of(const std::vector<Cell>& cells) {
  std::vector<std::string> names;
  const std::vector<std::string> known(columns.begin(), columns.end());
  for (const Cell& cell : cells) {
    const std::string name(cell.text);
    if (std::ranges::find(known, name) == known.end())
      return error(ErrorCode::E104, cell.where, fmt::format("there is no column \"{}\"", name))
          .help(did_you_mean(name, known));
    if (std::ranges::find(names, name) != names.end())
      return error(ErrorCode::E104, cell.where, fmt::format("column \"{}\" is there twice", name));
    names.push_back(name);
  }
  const auto has = [&](std::string_view name) { return std::ranges::find(names, name) != names.end(); };
  if (has("product") || has("bytes")) return names;
  for (const std::string_view needed : {"model", "schedule"})
    if (!has(needed))
      return error(ErrorCode::E104, cells[0].where, fmt::format("column \"{}\" is missing", needed))
          .help("the first line names the columns: set,model,schedule,batch,seconds");
  return names;
}

template <class Number>
Result<Number> number_in(const Cell& cell, const std::string& column, Number most) {
  Number value = 0;
  const auto [rest, problem] = std::from_chars(cell.text.data(), cell.text.data() + cell.text.size(), value);
  if (problem != std::errc() || rest != cell.text.data() + cell.text.size() || !(value > 0 && value <= most))
    return error(ErrorCode::E102, cell.where, fmt::format("{} must be a number above 0", column));
  return value;
}

/// `4096x11008x4096`, rows x columns x depth, or with how many before them.
Result<MatrixProduct> product_in(const Cell& cell) {
  constexpr int64_t most = 1'000'000'000;
  std::vector<int64_t> sizes;
  for (size_t begin = 0; begin <= cell.text.size();) {
    const size_t end = std::min(cell.text.find('x', begin), cell.text.size());
    auto size = number_in<int64_t>({cell.text.substr(begin, end - begin), cell.where}, "a size of product", most);
    if (!size) return std::move(size.error()).help("rows x columns x depth, as in 4096x11008x4096");
    sizes.push_back(*size);
    begin = end + 1;
  }
  if (sizes.size() == 3) sizes.insert(sizes.begin(), 1);
  if (sizes.size() != 4)
    return error(ErrorCode::E102, cell.where, fmt::format("a product has 3 sizes, not {}", sizes.size()))
        .help("rows x columns x depth, as in 4096x11008x4096; 32x4096x128x4096 for 32 of them");
  return MatrixProduct{sizes[0], sizes[1], sizes[2], sizes[3]};
}

/// As written, or from the folder of the table.
std::string file_beside(const SourceFilePtr& table, std::string_view name) {
  if (name.empty() || name.starts_with("analytic:")) return std::string(name);
  return (std::filesystem::path(table->name).parent_path() / name).string();
}

MeasuredKernel& kernel_of(MeasuredStep& step) {
  return step.kernel ? *step.kernel : step.kernel.emplace();
}

Checked read(const Cell& cell, const std::string& column, MeasuredStep& step) {
  if (column == "set") step.set = cell.text;
  if (column == "model") step.model = file_beside(cell.where.file, cell.text);
  if (column == "schedule") step.schedule = file_beside(cell.where.file, cell.text);
  if (column == "costs") step.costs = file_beside(cell.where.file, cell.text);
  if (cell.text.empty()) return Ok{};
  if (column == "batch") {
    PIPER_TRY(step.batch, number_in<int64_t>(cell, column, 1'000'000'000));
  } else if (column == "sequence") {
    PIPER_TRY(step.sequence, number_in<int64_t>(cell, column, 1'000'000'000));
  } else if (column == "dtype") {
    const std::optional<DType> dtype = dtype_named(cell.text);
    if (!dtype) return error(ErrorCode::E102, cell.where, fmt::format("there is no dtype \"{}\"", cell.text));
    kernel_of(step).dtype = *dtype;
  } else if (column == "product") {
    PIPER_TRY(kernel_of(step).product, product_in(cell));
  } else if (column == "bytes") {
    PIPER_TRY(kernel_of(step).bytes, number_in<int64_t>(cell, column, 1'000'000'000'000));
  } else if (column == "seconds") {
    PIPER_TRY(step.seconds, number_in<double>(cell, column, 1e9));
  }
  return Ok{};
}

Checked check_kernel(const MeasuredStep& step) {
  if (!step.model.empty() || !step.schedule.empty() || !step.costs.empty() || step.batch || step.sequence)
    return error(ErrorCode::E104, step.where, "a row is a step with a model and a schedule, or a kernel, not both");
  if (step.kernel->product.has_value() == (step.kernel->bytes > 0))
    return error(ErrorCode::E104, step.where, "a kernel needs either product or bytes");
  if (step.seconds == 0) return error(ErrorCode::E104, step.where, "a kernel needs seconds");
  return Ok{};
}

}  // namespace

Result<std::vector<MeasuredStep>> parse_measured_steps(const SourceFilePtr& file) {
  const std::vector<std::vector<Cell>> lines = cells_of(file);
  if (lines.size() < 2)
    return error(ErrorCode::E101, {file, 0, 0}, "no measured steps")
        .help("the first line names the columns, every further one is a step: model,schedule,batch,seconds");
  PIPER_TRY(const std::vector<std::string> names, header_of(lines[0]));
  std::vector<MeasuredStep> steps;
  for (size_t l = 1; l < lines.size(); ++l) {
    MeasuredStep& step = steps.emplace_back();
    step.where = lines[l][0].where;
    if (lines[l].size() != names.size())
      return error(ErrorCode::E101, step.where,
                   fmt::format("{} cells in a table of {} columns", lines[l].size(), names.size()));
    for (size_t c = 0; c < names.size(); ++c) PIPER_CHECK(read(lines[l][c], names[c], step));
    if (step.kernel) {
      PIPER_CHECK(check_kernel(step));
      continue;
    }
    if (step.model.empty() || step.schedule.empty())
      return error(ErrorCode::E101, step.where, "a step needs a model and a schedule");
    if ((step.seconds > 0) == !step.costs.empty())
      return error(ErrorCode::E104, step.where, "a row needs either seconds or costs")
          .help("seconds: of a whole step; costs: a table that piper profile wrote");
  }
  return steps;
}

}  // namespace piper
