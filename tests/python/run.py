"""pytest, where PyTorch can be imported; elsewhere 77, which ctest takes for a test that was skipped."""
import importlib.util
import sys

try:
    import pytest
    import torch  # noqa: F401

    if importlib.util.find_spec("transformers") is None:
        raise ImportError("there is no transformers")
except ImportError as problem:
    print(f"skipped: {problem}; scripts/setup --tests installs what is missing in .venv")
    sys.exit(77)
code = pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]])
sys.exit(0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code)  # a file may have long tests only
