#include "page/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/invariant.h"
#include "page/web_files.h"

namespace piper {
namespace {

std::string_view web_file(std::string_view name) {
  const auto files = web_files();
  const auto found = std::find_if(files.begin(), files.end(), [&](const WebFile& file) { return file.name == name; });
  invariant(found != files.end(), "the program contains all files of the page");
  return found->text;
}

/// `web/search.js` is the module `piper/search`.
std::string import_map() {
  std::string out;
  for (const WebFile& file : web_files()) {
    if (!file.name.ends_with(".js")) continue;
    out += fmt::format("{}\n\"piper/{}\": \"data:text/javascript;base64,{}\"", out.empty() ? "" : ",",
                       file.name.substr(0, file.name.size() - 3), base64(file.text));
  }
  return "{\"imports\": {" + out + "}}";
}

void put_in(std::string& page, std::string_view mark, const std::string& text) {
  const size_t at = page.find(mark);
  invariant(at != std::string::npos, "the page has a place for all its parts");
  page.replace(at, mark.size(), text);
}

}  // namespace

std::string make_page(const std::vector<PageTrace>& traces) {
  std::string page(web_file("index.html"));
  std::string packed;
  const auto add = [&](std::string_view type, const std::string& text) {
    packed += fmt::format("<script type=\"application/x-piper-{}\">{}</script>\n", type, text);
  };
  for (const PageTrace& trace : traces) {
    add("trace", pack(trace));
    add("buffers", pack_buffers(trace.trace));
  }
  put_in(page, "{{style}}", std::string(web_file("style.css")));
  put_in(page, "{{importmap}}", import_map());
  put_in(page, "{{traces}}", packed);
  return page;
}

}  // namespace piper
