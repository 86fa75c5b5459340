#include "tools/svg_to_png.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <vector>

namespace piper {
namespace {

constexpr std::string_view png_begins = "\x89PNG\r\n\x1a\n";

/// A folder of its own, removed at the end.
class DrawingFolder {
 public:
  DrawingFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "piper_draws_XXXXXX").string();
    if (mkdtemp(pattern.data())) path_ = pattern;
  }
  ~DrawingFolder() {
    std::error_code none;
    if (!path_.empty()) std::filesystem::remove_all(path_, none);
  }
  DrawingFolder(const DrawingFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  explicit operator bool() const { return !path_.empty(); }

 private:
  std::filesystem::path path_;
};

/// Runs a program to its end, silent. False: it is not installed. What it has not written is seen by who wants it.
bool run_silently(std::vector<std::string> words) {
  std::vector<char*> raw;
  for (std::string& word : words) raw.push_back(word.data());
  raw.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&files, stream, "/dev/null", O_RDWR, 0);
  pid_t process = 0;
  const int failure = posix_spawnp(&process, raw[0], &files, nullptr, raw.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (failure != 0) return false;
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return !(WIFEXITED(status) && WEXITSTATUS(status) == 127);  // how some report that it is not there
}

std::string bytes_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string pixels(const std::string& svg, const std::string& side) {
  std::smatch found;
  const std::string head = svg.substr(0, svg.find('>'));
  return std::regex_search(head, found, std::regex(" " + side + "=\"([0-9]+)")) ? found[1].str() : "1200";
}

Diagnostic cannot_draw(const std::string& why) {
  return error(ErrorCode::E108, {}, "the picture cannot be drawn as PNG: " + why)
      .help("install rsvg-convert (Debian: librsvg2-bin) or chromium")
      .help("or write an .svg, which presentations take as well");
}

}  // namespace

Result<std::string> svg_to_png(const std::string& svg) {
  const DrawingFolder folder;
  if (!folder) return cannot_draw(fmt::format("no temporary folder: {}", std::strerror(errno)));
  const std::string drawing = folder / "picture.svg", picture = folder / "picture.png";
  if (std::ofstream out(drawing, std::ios::binary); !(out << svg << std::flush))
    return cannot_draw(fmt::format("{} cannot be written: {}", drawing, std::strerror(errno)));
  std::vector<std::vector<std::string>> programs = {{"rsvg-convert", "--output", picture, drawing}};
  for (const char* browser : {"chromium", "chromium-browser", "google-chrome"})
    programs.push_back({browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                        "--force-device-scale-factor=1", "--user-data-dir=" + (folder / "profile"),
                        fmt::format("--window-size={},{}", pixels(svg, "width"), pixels(svg, "height")),
                        "--screenshot=" + picture, "file://" + drawing});
  std::string failed;
  for (const std::vector<std::string>& program : programs) {
    if (!run_silently(program)) continue;
    std::string bytes = bytes_of_file(picture);
    if (bytes.starts_with(png_begins)) return bytes;
    failed += (failed.empty() ? "" : ", ") + program[0];
  }
  if (failed.empty()) return cannot_draw("neither rsvg-convert nor chromium is installed");
  return cannot_draw(fmt::format("{} has drawn nothing", failed));
}

}  // namespace piper
