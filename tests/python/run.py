"""pytest for one file after the other, each in a process of its own, where PyTorch can be imported; elsewhere 77, which ctest takes
for a test that was skipped. Arguments: files and options of pytest.

Importing PyTorch and transformers takes longer than many files do: it happens once, and every file begins in a copy of that process.
"""
import importlib.util
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    import pytest
    import torch  # noqa: F401

    if importlib.util.find_spec("transformers") is None:
        raise ImportError("there is no transformers")
except ImportError as problem:
    print(f"skipped: {problem}; scripts/setup --tests installs what is missing in .venv")
    sys.exit(77)
import torch._dynamo  # noqa: F401  FakeTensorMode needs it
import transformers.modeling_utils  # noqa: F401

files = [argument for argument in sys.argv[1:] if os.path.exists(argument)]
options = [argument for argument in sys.argv[1:] if not os.path.exists(argument)]
threads = len(os.listdir("/proc/self/task"))
assert threads == 1, f"importing has started {threads - 1} threads, which a copy of this process would not have"

failed = []
for file in files:
    print(f"== {os.path.basename(file)}", flush=True)
    process = os.fork()
    if process == 0:
        code = pytest.main(["-q", "-p", "no:cacheprovider", *options, file])
        sys.exit(0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code)  # a file may have long tests only
    if os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) != 0:
        failed.append(os.path.basename(file))
if failed:
    sys.exit("failed: " + " ".join(failed))
