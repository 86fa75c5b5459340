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

}  // namespace piper
