"""The Dockerfiles parse, and do what the README says: its systems, its targets of make, its commands, its place of the program."""
import re
import shlex
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = sorted(ROOT.glob("Dockerfile*"))
README = (ROOT / "README.md").read_text()
INSTRUCTIONS = {"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "ONBUILD", "RUN", "SHELL",
                "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}


def comments(text):
    return [line[1:].strip() for line in text.splitlines() if line.startswith("#")]


def instructions(text):
    """(instruction, arguments) of each; a line that ends with a backslash goes on in the next."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        word, _, rest = line.partition(" ")
        yield word, rest.strip()


def commands(shell):
    """The commands of a RUN, as words."""
    return [shlex.split(command) for command in shell.split("&&")]


class Dockerfiles(unittest.TestCase):
    def each(self):
        self.assertEqual([file.name for file in FILES], ["Dockerfile", "Dockerfile.cuda"])
        for file in FILES:
            with self.subTest(file=file.name):
                yield file, file.read_text(), list(instructions(file.read_text()))

    def test_they_parse(self):
        for _, _, steps in self.each():
            self.assertEqual(steps[0][0], "FROM")
            for word, rest in steps:
                self.assertIn(word, INSTRUCTIONS)
                self.assertTrue(rest, word)
                if word == "RUN":
                    self.assertTrue(all(commands(rest)))

    def test_systems_are_those_of_the_readme(self):
        names = {"debian:12": "Debian 12", "ubuntu24.04": "Ubuntu 24.04"}
        for _, _, steps in self.each():
            found = [name for system, name in names.items() if steps[0][1].endswith(system)]
            self.assertEqual(len(found), 1, steps[0][1])
            self.assertIn(found[0], README)

    def test_targets_of_make_exist(self):
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        for _, _, steps in self.each():
            used = [words[1] for word, rest in steps if word == "RUN" for words in commands(rest) if words[0] == "make"]
            self.assertTrue(used)
            self.assertLessEqual(set(used), targets)

    def test_the_program_is_where_the_readme_says(self):
        self.assertIn("`build/release/piper`", README)
        for _, _, steps in self.each():
            folder = dict(steps)["WORKDIR"]
            self.assertTrue(dict(steps)["ENV"].startswith(f"PATH={folder}/build/release:"))
            self.assertIn(dict(steps)["COPY"], {". ."})

    def test_commands_are_those_of_the_readme(self):
        for file, text, _ in self.each():
            lines = [line for line in comments(text) if line.startswith("docker build")]
            self.assertEqual(len(lines), 1)
            build, start = (shlex.split(part) for part in lines[0].split("&&"))
            self.assertEqual(build[build.index("-f") + 1] if "-f" in build else "Dockerfile", file.name)
            image = build[build.index("-t") + 1]
            inside = start[start.index(image) + 1:]
            if inside:
                self.assertIn(f"$ {shlex.join(inside)}\n", README)


if __name__ == "__main__":
    unittest.main()
