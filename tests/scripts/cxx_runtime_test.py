"""Programs beside libtorch have one C++ runtime, also where the compiler links its own statically: cmake/cxx_runtime.cmake."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
COMPILER = shutil.which("c++") or shutil.which("g++")

PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(runtime LANGUAGES CXX)
include({ROOT}/cmake/cxx_runtime.cmake)
add_library(other INTERFACE)
share_cxx_runtime(other ${{LIBRARY}})
add_executable(program program.cc)
target_link_libraries(program PRIVATE other ${{LIBRARY}})
"""
LIBRARY = "#include <locale>\nstd::locale given() { return std::locale(std::locale(), new std::numpunct<char>); }\n"
PROGRAM = """#include <iostream>
#include <locale>
std::locale given();
int main() {
  std::locale locale = given();
  std::cout << std::use_facet<std::numpunct<char>>(locale).decimal_point() << std::endl;
}
"""


@unittest.skipUnless(COMPILER, "there is no C++ compiler")
class CxxRuntime(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "CMakeLists.txt").write_text(PROJECT)
        (self.folder / "program.cc").write_text(PROGRAM)
        (self.folder / "library.cc").write_text(LIBRARY)
        self.library = self.folder / "libother.so"
        subprocess.run([COMPILER, "-shared", "-fPIC", self.folder / "library.cc", "-o", self.library], check=True)

    def configure(self, compiler):
        return subprocess.run(["cmake", "-S", self.folder, "-B", self.folder / "build", f"-DCMAKE_CXX_COMPILER={compiler}",
                               f"-DLIBRARY={self.library}"], capture_output=True, text=True)

    def compiler_that_adds(self, options):
        """A compiler that gives these options to the linker, behind all others."""
        path = self.folder / "compiler"
        path.write_text(f'#!/bin/sh\nfor word in "$@"; do [ "$word" = -c ] && exec {COMPILER} "$@"; done\nexec {COMPILER} "$@" {options}\n')
        path.chmod(0o755)
        return path

    def expect_shared(self, configured):
        self.assertEqual(configured.returncode, 0, configured.stderr)
        subprocess.run(["cmake", "--build", self.folder / "build"], check=True, capture_output=True)
        program = self.folder / "build/program"
        needed = subprocess.run(["readelf", "--dynamic", program], capture_output=True, text=True, check=True).stdout
        self.assertIn("libstdc++.so.6", needed)
        done = subprocess.run([program], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ".\n"))

    def test_a_usual_compiler_is_left_alone(self):
        configured = self.configure(COMPILER)
        self.assertNotIn("C++ runtime", configured.stdout)
        self.expect_shared(configured)

    def test_a_compiler_that_links_its_own_gets_the_shared_one(self):
        configured = self.configure(self.compiler_that_adds("-static-libstdc++"))
        if "its own statically" not in configured.stdout and os.path.basename(COMPILER).startswith("clang"):
            self.skipTest("this compiler has no static runtime")
        self.assertIn("C++ runtime: the compiler links its own statically", configured.stdout)
        self.expect_shared(configured)

    def test_one_that_cannot_share_is_refused(self):
        archive = subprocess.run([COMPILER, "-print-file-name=libstdc++.a"], capture_output=True, text=True, check=True).stdout.strip()
        if not os.path.isabs(archive):
            self.skipTest("this compiler has no static runtime")
        configured = self.configure(self.compiler_that_adds(f"-Wl,--whole-archive {archive} -Wl,--no-whole-archive"))
        self.assertNotEqual(configured.returncode, 0)
        self.assertIn("programs with both abort", " ".join(configured.stderr.split()))


if __name__ == "__main__":
    unittest.main()
