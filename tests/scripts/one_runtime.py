"""A built program defines nothing that the C++ runtime it loads defines: `one_runtime.py PROGRAM`. Weak symbols are templates and inline functions,
which every program has."""
import subprocess
import sys


def defined(file, *options):
    """The strong symbols that a file defines, without versions."""
    lines = subprocess.run(["nm", "--defined-only", *options, file], capture_output=True, text=True, check=True).stdout.splitlines()
    return {words[2].split("@")[0] for words in map(str.split, lines) if len(words) == 3 and words[1] in "TDBR"}


def main(program):
    loaded = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    runtimes = [line.split()[2] for line in loaded.splitlines() if "libstdc++.so.6 =>" in line]
    if not runtimes:
        print("skipped: the program has another C++ runtime")
        return 77
    runtime = defined(runtimes[0], "--dynamic")
    assert "_ZNSt6localeD1Ev" in runtime, f"{runtimes[0]} does not define std::locale::~locale"
    twice = sorted((defined(program) | defined(program, "--dynamic")) & {name for name in runtime if name.startswith("_Z")})
    if twice:
        print(f"{program} and {runtimes[0]} both define {len(twice)} symbols: {' '.join(twice[:5])}")
    return 1 if twice else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
