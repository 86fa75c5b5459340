// What pages without a script have in common: one HTML file that needs nothing else.
#pragma once

#include <string>
#include <string_view>

namespace piper {

/// `body` is markup; the title is text.
std::string plain_page(std::string_view title, std::string_view body);

/// Text as markup that shows it.
std::string escaped_text(std::string_view text);

}  // namespace piper
