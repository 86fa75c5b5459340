"""What Piper uses of PyTorch besides its documented interface still works as it did. Run this first with another version."""
import os
import subprocess
import sys
from pathlib import Path

import torch

from piper import _torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import limits  # noqa: E402


def test_version():
    assert torch.__version__.split("+")[0] == _torch.WANTED


def test_another_version_is_refused_at_import(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text('__version__ = "2.10.0+cpu"\n')
    path = os.pathsep.join([str(tmp_path), str(Path(_torch.__file__).parents[1])])
    done = subprocess.run([sys.executable, "-c", "import piper"], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: piper was built for PyTorch {_torch.WANTED}, this is 2.10.0+cpu: pip install torch=={_torch.WANTED}, "
        "or build piper for another version after tests/python/test_torch.py passes with it")


def test_fake_tensors_have_shapes_and_no_numbers():
    mode = _torch.fake_mode()
    real = torch.nn.Parameter(torch.randn(2, 3).t())
    fake = _torch.fake_like(mode, real, "cpu")
    assert isinstance(fake, _torch.FakeTensor) and fake.shape == (3, 2) and fake.is_contiguous() and fake.requires_grad
    assert fake.device.type == "cpu" and fake.untyped_storage().nbytes() == 24
    with mode:
        assert isinstance(torch.zeros(2), _torch.FakeTensor)
        assert isinstance(fake + torch.ones(2), _torch.FakeTensor)


def test_fake_mode_refuses_what_depends_on_numbers():
    mode = _torch.fake_mode()
    fake = _torch.fake_like(mode, torch.randn(3), "cpu")
    for dependent in (torch.nonzero, torch.Tensor.item, bool):
        try:
            with mode:
                dependent(fake.sum())
        except Exception as problem:
            assert "DataDependent" in type(problem).__name__ or "DynamicOutputShape" in type(problem).__name__
        else:
            raise AssertionError(dependent)


def test_checkpoint_is_called_through_and_put_back():
    module = torch.utils.checkpoint
    before = module._checkpoint_without_reentrant_generator, module.CheckpointFunction
    with _torch.recording(_torch.fake_mode()):
        for reentrant in (False, True):
            assert module.checkpoint(lambda x: x + 1, 1, use_reentrant=reentrant) == 2
        assert module.checkpoint_sequential([lambda x: x + 1] * 4, 2, 1, use_reentrant=False) == 5
    assert (module._checkpoint_without_reentrant_generator, module.CheckpointFunction) == before


def test_products_end_on_cpus_that_blas_does_not_know():
    """src/runtime/blas_without_sve.cc; any other BLAS passes."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NVPL_")}
    script = "import piper, torch; a = torch.ones(64, 64); assert (a @ a)[0, 0] == 64"
    subprocess.run([sys.executable, "-c", script], env=environment, timeout=limits.SLACK, check=True)
