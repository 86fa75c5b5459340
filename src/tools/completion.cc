#include "tools/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace piper {

std::string bash_completion(const std::vector<CompletionWords>& commands, const std::vector<std::string>& models) {
  std::vector<std::string> names;
  std::string cases;
  for (const CompletionWords& command : commands) {
    names.push_back(command.command);
    cases += fmt::format("    {}) words=\"{}\" ;;\n", command.command, fmt::join(command.options, " "));
  }
  return fmt::format(R"(# bash completion for piper: source <(piper completion bash)
_piper() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} words=
  if [[ $COMP_CWORD == 1 ]]; then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$current"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  if [[ ${{COMP_WORDS[COMP_CWORD-1]}} == --emit ]]; then
    COMPREPLY=($(compgen -W "schedule dag plan timeline grid json" -- "$current"))
  elif [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$words --help" -- "$current"))
  elif [[ ${{COMP_LINE:0:COMP_POINT}} =~ analytic:[^\ ]*$ ]]; then  # the colon makes words of its own
    COMPREPLY=($(compgen -W "{}" -- "${{current#:}}"))
  else
    COMPREPLY=($(compgen -f -- "$current"; compgen -W "analytic:" -- "$current"))
    [[ ${{COMPREPLY[*]}} != analytic: ]] || compopt -o nospace 2>/dev/null
  fi
}}
complete -o filenames -F _piper piper
)",
                     fmt::join(names, " "), cases, fmt::join(models, " "));
}

namespace {

/// In single quotes, for any of the shells.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("\u2019") : std::string(1, c);
  return out + "'";
}

/// zsh ends a word at a colon that no backslash precedes.
std::string described(const std::string& word, const std::string& help) {
  return quoted(word + ":" + help);
}

}  // namespace

std::string zsh_completion(const std::vector<CompletionWords>& commands, const std::vector<std::string>& models) {
  std::string names, cases;
  for (const CompletionWords& command : commands) {
    names += "    " + described(command.command, command.help) + "\n";
    cases += fmt::format("    {}) options=({}) ;;\n", command.command, fmt::join(command.options, " "));
  }
  return fmt::format(R"(#compdef piper
# zsh completion for piper: source <(piper completion zsh)
_piper() {{
  local -a commands options models
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  case ${{words[2]}} in
{}  esac
  models=({})
  if [[ ${{words[CURRENT]}} == -* ]]; then
    compadd -- $options --help
  elif [[ ${{words[CURRENT]}} == analytic:* ]]; then
    compadd -P analytic: -- $models
  else
    _files
    compadd -S '' -- analytic:
  fi
}}
compdef _piper piper
)",
                     names, cases, fmt::join(models, " "));
}

std::string fish_completion(const std::vector<CompletionWords>& commands, const std::vector<std::string>& models) {
  std::string out = "# fish completion for piper: piper completion fish | source\n";
  for (const CompletionWords& command : commands) {
    out += fmt::format("complete -c piper -n __fish_use_subcommand -f -a {} -d {}\n", command.command,
                       quoted(command.help));
    for (const std::string& word : command.options)
      out += word.starts_with("--") ? fmt::format("complete -c piper -n '__fish_seen_subcommand_from {}' -l {}\n",
                                                  command.command, word.substr(2))
                                    : fmt::format("complete -c piper -n '__fish_seen_subcommand_from {}' -f -a {}\n",
                                                  command.command, word);
  }
  for (const std::string& model : models)
    out += fmt::format("complete -c piper -n 'not __fish_use_subcommand' -a analytic:{}\n", model);
  return out;
}

}  // namespace piper
