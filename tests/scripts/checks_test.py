"""The checks of the repository find what they are there to find: small trees with one planted fault each."""
import importlib.machinery
import importlib.util
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / "scripts"
LAYERS = {path: (ROOT / path).read_text() for path in ["cmake/layers.cmake", "src/README.md"]}
sys.dont_write_bytecode = True


def write(root, files):
    for path, text in files.items():
        file = Path(root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def load(script):
    loader = importlib.machinery.SourceFileLoader(script, str(SCRIPTS / script))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(script, loader))
    loader.exec_module(module)
    return module


def problems(script, files):
    """What a check finds in a tree of {path: text}."""
    with tempfile.TemporaryDirectory() as root:
        write(root, files)
        return "\n".join(load(script).problems(Path(root)))


class CheckTest(unittest.TestCase):
    def accepts(self, script, files):
        self.assertEqual(problems(script, files), "")

    def refuses(self, script, files, *expected):
        found = problems(script, files)
        self.assertNotEqual(found, "")
        for text in expected:
            self.assertIn(text, found)


class ExitCode(unittest.TestCase):
    def run_on(self, files):
        with tempfile.TemporaryDirectory() as root:
            write(root, {**LAYERS, **files})
            return subprocess.run([sys.executable, SCRIPTS / "check_layers", root], capture_output=True, text=True)

    def test_fine_is_0(self):
        self.assertEqual(self.run_on({"src/base/a.h": ""}).returncode, 0)

    def test_offence_is_1_and_printed(self):
        done = self.run_on({"src/base/a.h": '#include "ir/b.h"\n'})
        self.assertEqual(done.returncode, 1)
        self.assertIn("src/base/a.h:1:", done.stdout)


class CheckLayers(CheckTest):
    def accepts(self, script, files):
        super().accepts(script, {**LAYERS, **files})

    def refuses(self, script, files, *expected):
        super().refuses(script, {**LAYERS, **files}, *expected)

    def test_downwards_is_fine(self):
        self.accepts("check_layers", {
            "src/base/a.h": "#include <vector>\n",
            "src/plan/b.cc": '#include "plan/b.h"\n#include "base/a.h"\n#include "cost/c.h"\n',
            "src/sim/d.cc": '#include "plan/b.h"\n#include "trace/t.h"\n',
            "src/tools/e.cc": '#include <CLI/CLI.hpp>\n#include "sim/d.h"\n#include "page/p.h"\n',
            "src/tools/training/e.cc": '#include "tools/e.h"\n#include "runtime/r.h"\n#include "train/loop/l.h"\n',
            "src/comm/mpi/f.cc": "#include <mpi.h>\n",
            "src/comm/nccl/library/f.cc": "#include <nccl.h>\n",
            "src/schedule/g.cc": "#include <nlohmann/json.hpp>\n",
            "src/schedule/g.h": "#include <nlohmann/json_fwd.hpp>\n",
        })

    def test_every_wrong_direction_is_named(self):
        for layer, target in [("base", "model"), ("model", "ir"), ("cost", "schedule"), ("schedule", "cost"),
                              ("directives", "passes"), ("passes", "plan"), ("plan", "compile"), ("trace", "model"),
                              ("sim", "runtime"), ("runtime", "sim"), ("sim", "compile"), ("runtime", "compile"),
                              ("comm", "plan"), ("compile", "tools"), ("tools", "capture"), ("capture", "compile"),
                              ("python", "tools"), ("python", "tools/training"), ("runtime/optimizer", "runtime"), ("train", "train/loop")]:
            with self.subTest(layer=layer, target=target):
                self.refuses("check_layers", {f"src/{layer}/a.cc": f'\n  #  include "{target}/b.h"\n'},
                             f"src/{layer}/a.cc:2:", "may include", "; not ")

    def test_libraries_stay_in_their_folders(self):
        for layer, header in [("ir", "<torch/torch.h>"), ("sim", "<ATen/ATen.h>"), ("plan", "<c10/core/Device.h>"),
                              ("base", "<mpi.h>"), ("comm/gpu", "<nccl.h>"), ("comm/nccl", "<mpi.h>"),
                              ("compile", "<CLI/CLI.hpp>")]:
            with self.subTest(header=header):
                self.refuses("check_layers", {f"src/{layer}/a.cc": f"#include {header}\n"}, f"src/{layer}/a.cc:1:")

    def test_json_stays_out_of_headers(self):
        self.refuses("check_layers", {"src/tools/a.h": "#include <nlohmann/json.hpp>\n"}, "src/tools/a.h:1:")

    def test_unknown_layer_and_bare_include(self):
        self.refuses("check_layers", {"src/utils/a.h": ""}, "utils is in no layer")
        self.refuses("check_layers", {"src/ir/a.cc": '#include "a.h"\n'}, "src/ir/a.cc:1:", "layer/a.h")

    def test_what_works_on_plans_names_no_kind_of_sharding(self):
        self.refuses("check_layers", {"src/sim/a.cc": "\n  if (kind == ShardKind::Tp)\n"}, "src/sim/a.cc:2:", "ShardKind::Tp")
        self.refuses("check_layers", {"src/plan/a.cc": "\n  return plan.shared[SampleAxis::Tp];\n"}, "src/plan/a.cc:2:", "SampleAxis::Tp")
        self.refuses("check_layers", {"src/runtime/a.cc": "\n  labelled(shape, routed_label)\n"}, "src/runtime/a.cc:2:", "routed_label")
        self.accepts("check_layers", {"src/passes/a.cc": "ShardKind::Tp, SampleAxis::Tp, tp_label\n"})

    def test_the_readme_describes_the_layers(self):
        readme = LAYERS["src/README.md"]
        row = next(line for line in readme.splitlines() if line.startswith("| `sim` |"))
        self.refuses("check_layers", {"src/README.md": readme.replace(row + "\n", "")}, "no row for the layer sim")
        self.refuses("check_layers", {"src/README.md": readme.replace(row, row.replace("plan, trace", "plan"))}, "stands on plan, trace")
        self.refuses("check_layers", {"src/README.md": readme.replace(row, row + "\n" + row.replace("`sim`", "`dim`"))}, "dim is no row")

    def test_layers_stand_on_rows_above(self):
        table = LAYERS["cmake/layers.cmake"]
        self.refuses("check_layers", {"cmake/layers.cmake": table.replace('"trace      | trace              | base ', '"trace      | trace              | sim  ')},
                     "trace stands on sim, which is no layer above")

    def test_runtime_includes_nothing_that_plans_are_made_from(self):
        for layer in ("schedule", "ir", "cost"):
            self.refuses("check_layers", {"src/runtime/a.cc": f'\n#include "{layer}/a.h"\n'}, "src/runtime/a.cc:2:", "executes plans")
        self.accepts("check_layers", {"src/runtime/a.cc": '#include "plan/a.h"\n', "src/plan/a.h": "", "src/plan/a.cc": '#include "ir/b.h"\n'})

    def test_nor_do_headers_that_it_includes(self):
        through = {"src/runtime/a.cc": '\n#include "plan/a.h"\n', "src/plan/a.h": '#include "plan/b.h"\n', "src/plan/b.h": '#include "schedule/s.h"\n'}
        self.refuses("check_layers", through, "src/runtime/a.cc:2:", "plan/a.h includes plan/b.h includes schedule/s.h")
        around = {"src/plan/b.h": '#include "plan/a.h"\n'}  # in a circle, and to nothing that it must not see
        self.accepts("check_layers", {**through, **around})

    def test_a_name_of_a_class_stands_for_one_thing(self):
        def header(text, space="piper"):
            return f"namespace {space} {{\n{text}\n}}\n"
        for one, other in [("struct Origin { int a; };", "class Origin final : public A { };"), ("using Origin = int;", "struct Origin {};"),
                           ("enum class Origin : int { A };", "namespace {}\nstruct Origin {};")]:
            with self.subTest(one=one):
                self.refuses("check_layers", {"src/base/a.h": header(one), "src/ir/b.h": header(other)}, "piper::Origin", "src/base/a.h:2")
        for apart in [header("struct Origin {};", "piper::sim"), header("class Origin;"), header("struct A { struct Origin {}; };"),
                      header("struct Origin::Part {};"), header("// struct Origin {};\nconstexpr auto text = \"struct Origin {\";"),
                      header("void f() { struct Origin {}; }")]:
            with self.subTest(apart=apart):
                self.accepts("check_layers", {"src/base/a.h": header("struct Origin {};"), "src/ir/b.h": apart})
        self.accepts("check_layers", {"src/base/a.h": header("struct Origin {};"), "src/ir/b.cc": header("struct Origin {};")})

    def test_replaced_words_do_not_come_back(self):
        planted = [("src/comm/a.h", "int make_circle();"), ("src/sim/a.h", "int meeting_of(int op);"), ("src/comm/c.h", "class TcpWire {"),
                   ("tests/comm/a.cc", "nap(delays);"), ("src/tools/a.cc", 'app.add_option("--patience");'), ("src/comm/d.h", "Number of,"),
                   ("src/comm/b.cc", "const size_t numbers = 1;"), ("tests/b.cc", '#include "comm/numbers.h"'), ("docs/a.md", "one graph of CUDA"),
                   ("src/runtime/a.h", "bool look_away();"), ("src/capture/a.cc", "PassBody body;"), ("src/capture/b.cc", "another coding of it"),
                   ("tests/golden/a.txt", "aten::item depends on numbers"), ("src/train/a.cc", "on the processors of this machine"),
                   ("src/runtime/a.cuh", "struct Numbers {"), ("docs/b.md", "what the step time hangs on"), ("docs/c.md", "the optimiser"),
                   ("docs/d.md", "it goes on from the newest"), ("examples/a.toml", "[rate]"), ("src/plan/a.h", "int sharers = 1;"),
                   ("docs/e.md", "cut({layer=*}, along=tp)"), ("src/capture/c.h", "bool has_numbers"), ("src/capture/d.h", "/// By call that is beside:"),
                   ("src/capture/e.h", "// Operators of ours for tables"), ("src/passes/a.cc", "// devices of a cut that have parts"),
                   ("src/tools/b.cc", "print_csv(lower_to_actions(timeline))"), ("src/directives/a.cc", "struct Placement {"),
                   ("docs/f.md", "communication that is under way"),
                   ("docs/g.md", "if it has 32,768 words"), ("docs/h.md", "the ways out"), ("tests/golden/b.test", "; . idle (7 %)"),
                   ("docs/i.md", "ZeRO 3, halves of backward"), ("src/train/b.h", "// a moving mean of the weights"),
                   ("src/ir/a.h", "/// Rows one behind the other"), ("src/plan/b.h", "// the next one, around the end"),
                   ("src/runtime/b.h", "// what is freed behind the receive"), ("docs/j.md", "I and W its two halves")]
        for name, text in planted:
            with self.subTest(text=text):
                self.refuses("check_words", {name: f"\n{text}\n"}, f"{name}:2:", "instead of")
        for _, pattern, instead in load("check_words").WORDS:
            self.assertTrue(any(pattern.search(text) for _, text in planted), f"nothing is planted that {instead} stands for: {pattern.pattern}")
        self.accepts("check_words", {"src/base/a.h": "a circle is fine in geometry\n"})


TABLE = 'X(E101, "one") \\\n  X(E102, "two")\n'


class CheckErrors(CheckTest):
    complete = {
        "src/base/error_codes.h": TABLE,
        "docs/errors/README.md": "",
        "docs/errors/E101.md": "",
        "docs/errors/E102.md": "",
        "tests/golden/a/a.test": "x:1:1: error[E101]: bad\nx:2:1: error[E102]: worse\n",
    }

    def without(self, path):
        return {name: text for name, text in self.complete.items() if name != path}

    def test_complete_is_fine(self):
        self.accepts("check_errors", self.complete)

    def test_missing_page(self):
        self.refuses("check_errors", self.without("docs/errors/E102.md"), "no page docs/errors/E102.md")

    def test_missing_case(self):
        self.refuses("check_errors", self.without("tests/golden/a/a.test"), "error[E101]", "error[E102]")

    def test_page_without_code(self):
        self.refuses("check_errors", {**self.complete, "docs/errors/E999.md": ""}, "E999")

    def test_empty_table(self):
        self.refuses("check_errors", {"src/base/error_codes.h": ""}, "no rows")


class CheckDocs(CheckTest):
    def test_links_that_lead_somewhere(self):
        self.accepts("check_docs", {
            "src/base/README.md": "[up](../../README.md#the-top-of-it) [web](https://example.org)\n# Here\n[here](#here)\n",
            "src/base/a.h": "",
            "src/README.md": "",
            "README.md": "## The `top` of it\n`[not](a-link)`\n```\n[nor](this)\n```\n[folder](src/base)\n",
        })

    def test_link_that_leads_nowhere(self):
        self.refuses("check_docs", {"src/README.md": "", "README.md": "fine\n[gone](docs/gone.md)\n"},
                     "README.md:2:", "docs/gone.md")

    def test_heading_that_is_not_there(self):
        self.refuses("check_docs", {"src/README.md": "", "README.md": "# Top\n[a](#top)\n[b](#bottom)\n"},
                     "README.md:3:", "no such heading")

    def test_pages_in_the_navigation(self):
        navigation = "nav:\n  - Start: docs/a.md\n  - \"A: b\": docs/errors/README.md\n  - Made: docs/python_api.md\n"
        pages = {"docs/a.md": "", "docs/errors/README.md": "", "docs/errors/E101.md": ""}
        self.accepts("check_docs", {"mkdocs.yml": navigation, **pages})
        self.refuses("check_docs", {"mkdocs.yml": navigation, **pages, "docs/deep/b.md": ""}, "docs/deep/b.md is not in the navigation")
        self.refuses("check_docs", {"mkdocs.yml": navigation + "  - C: docs/c.md\n", **pages}, "there is no docs/c.md")

    def test_words_of_grammars(self):
        parser = {"src/plan/parse_plan.cc": 'if (in.accept_word("max")) return count("bytes");',
                  "src/model/shards.h": 'ShardRule{ShardKind::Tp, "tp", tp_label}'}
        page = 'Text:\n```\nplan = "max" [ "bytes" ] KIND\nKIND = "tp"\n```\n'
        self.accepts("check_docs", {**parser, "docs/plan.md": page, "src/README.md": "", "src/plan/README.md": "", "src/model/README.md": ""})
        self.refuses("check_docs", {**parser, "docs/plan.md": page.replace('"max" ', "")}, 'docs/plan.md:3: the grammar lacks "max"')
        self.refuses("check_docs", {**parser, "docs/plan.md": page.replace('"tp"', '"ep"')}, 'lacks "tp"', 'nothing reads "ep"')
        self.refuses("check_docs", {**parser, "docs/plan.md": "Text:\n"}, "docs/plan.md:1: no grammar")

    def test_folder_without_readme(self):
        self.refuses("check_docs", {"src/README.md": "", "src/base/a.h": ""}, "src/base: no README.md")


if __name__ == "__main__":
    unittest.main()
