"""Compiles lists of ATen calls with AOTInductor. On every line of its input the path of a folder with a file `text` (docs/kernels.md); what it
makes is `kernel.so` there, and what it answers is a line of JSON: {} or {"problem": why not}. The first answer says whether it can begin.

usage: python compile_kernels.py VERSION_OF_PYTORCH
"""
import json
import os
import subprocess
import sys
import warnings

answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # what libraries print is no answer


def answer(problem=None):
    print(json.dumps({"problem": problem} if problem else {}), file=answers, flush=True)


def reason(failure):
    """The last lines of some messages are advice for those who debug Inductor."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    return f"{type(failure).__name__}: {lines[0] if lines else 'no message'}"[:400]


def operator(name):
    space, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, space), base), overload or "default")


memory_formats = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")


def argument(value, tensors, device):
    """Plain values stand for themselves; everything else is an object with one key that says what it is."""
    if not isinstance(value, dict):
        return value
    [(kind, of)] = value.items()
    if kind == "tensor":
        return tensors[of]
    if kind == "tensors":
        return [None if item is None else tensors[item] for item in of]
    if kind == "dtype":
        return getattr(torch, of)
    if kind == "device":
        return device if of == "target" else torch.device(of)
    if kind == "layout":
        return (torch.strided,)[of]
    if kind == "memory_format":
        return getattr(torch, memory_formats[of])
    return {"number": float, "text": str}[kind](of)


def graph_of(text, device):
    graph, tensors = torch.fx.Graph(), {}
    for i in range(len(text["inputs"])):
        tensors[i] = graph.placeholder(f"input{i}")

    def take(results, value):
        if isinstance(results, list):
            for i, result in enumerate(results):
                if result is not None:
                    take(result, graph.call_function(getitem, (value, i)))
        elif results is not None:
            tensors[results] = value

    for call in text["calls"]:
        op = operator(call["op"])
        given = [argument(value, tensors, device) for value in call["arguments"]]
        args = [value for value, of in zip(given, op._schema.arguments) if not of.kwarg_only]
        kwargs = {of.name: value for value, of in zip(given, op._schema.arguments) if of.kwarg_only}
        value, results = graph.call_function(op, tuple(args), kwargs), call["results"]
        take(results[0] if len(op._schema.returns) == 1 else results, value)
    graph.output(tuple(tensors[i] for i in text["outputs"]))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def libraries(related):
    """Those that kernels are linked with: the program may lack libtorch.so, which only names the others; and a compiler that has the C++
    runtime as an archive only would give every kernel a runtime of its own, beside PyTorch's."""
    includes, folders, names = related
    names = [name for name in names if name != "torch"]
    found = subprocess.run([cpp_builder.get_cpp_compiler(), "-print-file-name=libstdc++.so"], capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(found):
        with open("/proc/self/maps") as file:
            loaded = next(line.split()[-1] for line in file if "/libstdc++.so.6" in line)
        folders, names = [*folders, os.path.dirname(loaded)], [*names, ":libstdc++.so.6"]
    return includes, folders, names


def empty(dtype, sizes, strides, offset, device):
    whole = torch.empty_strided(sizes, strides, dtype=dtype, device=device)
    if offset == 0:
        return whole
    elements = whole.untyped_storage().nbytes() // whole.element_size()
    return torch.empty(offset + elements, dtype=dtype, device=device).as_strided(sizes, strides, offset)


def compile_in(folder):
    with open(os.path.join(folder, "text")) as file:
        text = json.load(file)
    torch.set_num_threads(text["threads"])  # Inductor divides loops among so many
    torch.use_deterministic_algorithms(text["deterministic"])
    device = torch.device(text["device"])
    with FakeTensorMode(), torch.no_grad():
        inputs = [empty(getattr(torch, dtype), sizes, strides, offset, device) for dtype, sizes, strides, offset in text["inputs"]]
    options = {"aot_inductor.output_path": os.path.join(folder, "kernel.so"), "aot_inductor.embed_kernel_binary": True}
    if device.type == "cpu":
        options["compile_threads"] = 1  # processes for Triton
    with torch.no_grad():
        torch._inductor.aot_compile(graph_of(text, device), tuple(inputs), options=options)


try:
    from operator import getitem

    warnings.simplefilter("ignore")
    import torch
    import torch._inductor
    from torch._inductor import cpp_builder, cpu_vec_isa
    from torch._subclasses.fake_tensor import FakeTensorMode

    related_args = cpp_builder._get_torch_related_args
    cpu_vec_isa.VecISA.check_build = lambda isa, code: True  # compilers know what CPUs have; to try it takes longer than a kernel
    cpp_builder._get_torch_related_args = lambda *args, **kwargs: libraries(related_args(*args, **kwargs))
    if torch.__version__.split("+")[0] != sys.argv[1]:
        raise RuntimeError(f"{sys.executable} has PyTorch {torch.__version__}, {sys.argv[1]} is needed")
except Exception as failure:
    answer(reason(failure))
    sys.exit(1)

answer()
for line in sys.stdin:
    try:
        compile_in(line.rstrip("\n"))
        answer()
    except Exception as failure:
        answer(reason(failure))
