"""scripts/make_wheel finds what is wrong with a wheel; the package's own metadata, made without building it, is right."""
import importlib.machinery
import importlib.util
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("make_wheel", str(ROOT / "scripts/make_wheel"))
make_wheel = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_wheel", loader))
loader.exec_module(make_wheel)

METADATA = """Metadata-Version: 2.4
Name: piper-training
Version: 0.1.0
License-Expression: Apache-2.0
License-File: LICENSE
License-File: THIRD_PARTY_LICENSES.md
Requires-Dist: torch==2.11.0
Provides-Extra: data

License-Expression: MIT
"""


class Metadata(unittest.TestCase):
    def problems(self, old="", new=""):
        self.assertIn(old, METADATA)
        return list(make_wheel.metadata_problems(METADATA.replace(old, new, 1)))

    def test_faults_are_found(self):
        self.assertEqual(self.problems(), [])
        self.assertEqual(self.problems("License-Expression: Apache-2.0\n"), ['License-Expression is "None", not "Apache-2.0"'])
        self.assertEqual(self.problems("Expression: Apache-2.0", "Expression: MIT"), ['License-Expression is "MIT", not "Apache-2.0"'])
        self.assertEqual(self.problems("License-File: LICENSE\n"), ["License-File: LICENSE is missing"])
        self.assertEqual(self.problems("torch==2.11.0", "torch>=2.11.0"), ["Requires-Dist does not pin torch"])
        self.assertEqual(self.problems("piper-training", "piper"), ['Name is "piper"'])

    def test_the_package_has_none(self):
        try:
            from scikit_build_core import build
        except ImportError:
            self.skipTest("no scikit-build-core")
        with tempfile.TemporaryDirectory() as folder:
            info = build.prepare_metadata_for_build_wheel(folder, {})
            self.assertEqual(list(make_wheel.metadata_problems(Path(folder, info, "METADATA").read_text())), [])


class Wheels(unittest.TestCase):
    NAME = "piper_training-0.1.0-cp311-cp311-manylinux_2_36_x86_64.whl"

    def problems(self, change=lambda files: None, name=NAME):
        info = "piper_training-0.1.0.dist-info"
        files = {f"{info}/METADATA": METADATA.encode(), "piper_training.libs/": b"", "piper_training.libs/libfmt-1a2b.so.9.1.0": b"",
                 **{f"{info}/licenses/{of}": (ROOT / of).read_bytes() for of in make_wheel.LICENSE_FILES}}
        change(files)
        with tempfile.TemporaryDirectory() as folder:
            with zipfile.ZipFile(Path(folder, name), "w") as wheel:
                for path, content in files.items():
                    wheel.writestr(path, content)
            return "\n".join(make_wheel.wheel_problems(Path(folder, name)))

    def test_a_good_one_has_no_problem(self):
        self.assertEqual(self.problems(), "")

    def test_licences_are_in_it(self):
        licences = "piper_training-0.1.0.dist-info/licenses/"
        self.assertIn("is not the repository's LICENSE", self.problems(lambda files: files.pop(licences + "LICENSE")))
        self.assertIn("is not the repository's LICENSE", self.problems(lambda files: files.update({licences + "LICENSE": b"MIT"})))

    def test_libraries_in_it_have_licences(self):
        found = self.problems(lambda files: files.update({"piper_training.libs/libmpi-77.so.40": b""}))
        self.assertEqual(found, "piper_training.libs/libmpi-77.so.40 is shipped, but THIRD_PARTY_LICENSES.md does not name `libmpi`")

    def test_it_was_repaired(self):
        self.assertIn("was not repaired", self.problems(name=self.NAME.replace("manylinux_2_36", "linux")))


if __name__ == "__main__":
    unittest.main()
