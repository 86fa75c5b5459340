// What is wrong with the user's input: code, place, reason, the other half of the conflict, a way out.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error_codes.h"
#include "base/source.h"

namespace piper {

struct DiagnosticNote {
  SourceRange where;
  std::string message;
};

/// One refusal. Messages: lower case, no final period, the user's own words, both values.
struct Diagnostic {
  ErrorCode code;
  SourceRange where;
  std::string message;
  std::vector<DiagnosticNote> notes;
  std::vector<std::string> helps;

  Diagnostic&& note(SourceRange at, std::string text) && {
    notes.push_back({std::move(at), std::move(text)});
    return std::move(*this);
  }
  Diagnostic&& help(std::string text) && {
    if (!text.empty()) helps.push_back(std::move(text));
    return std::move(*this);
  }
};

Diagnostic error(ErrorCode code, SourceRange where, std::string message);

enum class Color { Never, Always };

/// For people: `file:line:column: error[E201]: …`, the line, a caret, notes, help. Ends with a newline.
std::string render(const Diagnostic& diagnostic, Color color = Color::Never);

/// For machines: one JSON object, `{"code", "title", "message", "place", "notes", "help"}`.
std::string render_json(const Diagnostic& diagnostic);

}  // namespace piper
