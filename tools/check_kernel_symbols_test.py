"""Compiles a clean and a leaking object and expects the check to tell."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).with_name("check_kernel_symbols.py")
COMPILER = os.environ.get("CXX", "c++")

CLEAN = """
namespace { float Twice(float x) { return 2 * x; } }
void Kernel(float* x, int n) { for (int i = 0; i < n; ++i) x[i] = Twice(x[i]); }
"""
# An inline function that is too much to inline at -O0.
INLINE_FUNCTION = "inline " + CLEAN.replace("namespace {", "").replace(
    "; } }", "; }"
).strip()
STATIC_IN_TEMPLATE = """
template <class T> struct Table { static T value; };
template <class T> T Table<T>::value = 3;
float Kernel() { return Table<float>::value; }
"""


class CheckKernelSymbolsTest(unittest.TestCase):
    def check(self, source: str, name: str = "kernels_avx512.cc.o"):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, name)
            subprocess.run(
                [COMPILER, "-O0", "-x", "c++", "-c", "-", "-o", str(path)],
                input=source,
                text=True,
                check=True,
            )
            return subprocess.run(
                [sys.executable, str(CHECK), str(path)],
                capture_output=True,
                text=True,
            )

    def test_private_functions_pass(self):
        result = self.check(CLEAN)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_inline_function_is_named(self):
        result = self.check(INLINE_FUNCTION)
        self.assertEqual(result.returncode, 1)
        self.assertIn("Twice(float)", result.stdout)

    def test_static_member_of_template_is_named(self):
        result = self.check(STATIC_IN_TEMPLATE)
        self.assertEqual(result.returncode, 1)
        self.assertIn("Table<float>::value", result.stdout)

    def test_other_objects_may_share(self):
        # But a list without a single AVX object means the check checks nothing.
        result = self.check(INLINE_FUNCTION, "conversions.cc.o")
        self.assertEqual(result.returncode, 1)
        self.assertNotIn("Twice", result.stdout)


if __name__ == "__main__":
    unittest.main()
