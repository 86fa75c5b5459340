"""Training on a GPU, against plain PyTorch there; and what is refused where there is none."""
import copy
import os
import subprocess
import sys
import textwrap

import pytest
import torch

import language_models
import piper
import plain
import schedules
import small
import test_updates as updates
from language_models import batches, capture, integration, loss, transformers
from test_reference import SOURCE, Case, reference  # noqa: F401 (a fixture)
from test_transformers import MIXTURES, build, captured, plain_run


def captured_small(**options):
    torch.manual_seed(0)
    model = small.Stack()
    piper.annotate_modules(model, {"layer": "layers.*"})
    return piper.capture(model, small.batch(), loss=small.loss, **options)


def why_not():
    """Why nothing can be trained on a GPU here; nothing: it can."""
    try:
        captured_small(on="cuda")
    except piper.RunError as error:
        return error.message


WHY_NOT = why_not()
needs_gpu = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
needs_reference = pytest.mark.skipif(not SOURCE.exists(), reason=f"{SOURCE} is not here")
DTYPES = [pytest.param(torch.float32, 1e-5, id="float32"), pytest.param(torch.float64, 1e-10, id="float64")]


@pytest.fixture(autouse=True)
def as_usual():
    yield
    torch.use_deterministic_algorithms(False)


# without a GPU


@pytest.mark.skipif(WHY_NOT is None, reason="there is a GPU")
def test_without_a_gpu_it_is_refused():
    for act in (lambda: captured_small(on="cuda"),
                lambda: piper.Trainer(small.Stack(), example_batch=small.batch(), loss=small.loss, on="cuda", graphs="step")):
        with pytest.raises(piper.RunError) as caught:
            act()
        assert caught.value.code == "E807" and "GPU" in caught.value.message and caught.value.help


@pytest.mark.thorough
@pytest.mark.skipif(WHY_NOT is None, reason="there is a GPU")
def test_without_gpus_processes_are_refused(tmp_path):
    done = start(tmp_path, 2, """
        piper.Trainer(model, schedule, example_batch=small.batch(), loss=small.loss, on="cuda")
    """)
    assert done.returncode != 0 and "error[E807]" in done.stderr, done.stderr


def test_words():
    graph = captured_small()
    for options, words in ((dict(on="gpu"), 'on is "gpu"'), (dict(graphs="all"), 'graphs is "all"'),
                           (dict(on="cuda"), 'captured for "cpu"'), (dict(graphs="chunk"), "are for GPUs"),
                           (dict(deterministic=True), "are for GPUs")):
        with pytest.raises(piper.ScheduleError) as caught:
            piper.Trainer(graph, **options)
        assert caught.value.code == "E105" and words in caught.value.message
    with pytest.raises(piper.ScheduleError, match='on is "tpu"'):
        captured_small(on="tpu")
    assert graph.on == "cpu"


# with one

_cases = {}


def case(reference, mixture, dtype):
    if (mixture, dtype) not in _cases:
        _cases[mixture, dtype] = Case(reference, mixture, dtype, on="cuda")
    return _cases[mixture, dtype]


@needs_gpu
@needs_reference
@pytest.mark.parametrize("graphs", ["none", "chunk", "step"])
@pytest.mark.parametrize("title", ["one device in turn", "1f1b", "dualpipev, zero 2"])
@pytest.mark.parametrize("dtype, limit", DTYPES)
@pytest.mark.parametrize("mixture", [False, True], ids=["dense", "mixture"])
def test_reference_equals_plain_pytorch(reference, mixture, dtype, limit, title, graphs):  # noqa: F811
    difference, where = case(reference, mixture, dtype).difference(*schedules.dense()[title], graphs=graphs)
    assert difference < limit, where


@needs_gpu
@pytest.mark.parametrize("dtype, limit", DTYPES)
@pytest.mark.parametrize("name", ["llama", "qwen3-moe"])
def test_transformers_equal_plain_pytorch(name, dtype, limit):
    for title in ("one device in turn", "1f1b, experts, zero 1" if name in MIXTURES else "1f1b, zero 1"):
        schedule, slices = {**schedules.dense(), **schedules.experts()}[title]
        ours = plain.train_piper(captured(name, dtype, "cuda"), schedule, batches(), graphs="step")
        difference, where = plain.worst(ours, plain_run(name, dtype, slices, "cuda"))
        assert difference < limit, (title, where)


@needs_gpu
def test_compiled_kernels_equal_plain_pytorch(tmp_path):
    """In graphs, with the loss in blocks of tokens and the fewest activations saved."""
    schedule, slices = schedules.dense()["1f1b, zero 1"]
    ours = plain.train_piper(capture(build("llama"), on="cuda", loss_block=7), schedule, batches(), graphs="step", kernels="inductor",
                             kernel_cache=str(tmp_path))
    difference, where = plain.worst(ours, plain_run("llama", torch.float32, slices, "cuda"))
    assert difference < 1e-5, where
    assert len(list(tmp_path.iterdir())) > 0


def gradients(model, batch, compute):
    """And the loss."""
    model = copy.deepcopy(model).cuda()
    value = compute(model, plain.to("cuda", batch))
    value.backward()
    return value.item(), {name: parameter.grad.double().cpu() for name, parameter in model.named_parameters()}


def distance(a, b):
    return sum((a[name] - b[name]).square().sum().item() for name in b) ** 0.5


def tokens_divided(sequence):
    return (piper.Schedule().mesh(pp=2, cp=2).split(4).place({}, along="pp", stages=2).replicate({}, along="cp", zero=2)
            .shard({}, along="cp", sequence=sequence).use("1f1b"))


@needs_gpu
@pytest.mark.parametrize("name, schedule", [("llama", None), ("qwen3-moe", None), ("llama", tokens_divided("gather")), ("llama", tokens_divided("heads"))],
                         ids=["llama", "qwen3-moe", "llama, gather", "llama, heads"])
def test_gradients_in_bfloat16_are_as_exact_as_plain_ones(name, schedule):
    """Sums of products are not rounded on their way (docs/gpu.md), so bits differ; the distance from float32 does not grow."""
    graph, batch = captured(name, torch.bfloat16, "cuda"), batches(1)[0]
    exact = gradients(copy.deepcopy(graph.module).float(), batch, loss)
    theirs = gradients(graph.module, batch, loss)
    with piper.Trainer(graph, schedule, optimizer=piper.SGD(lr=1.0, gradients="float32", master="float32")) as trainer:
        value = trainer.step(batch).loss
        state = trainer.optimizer_state_dict()["state"]
    start = {name: parameter.detach().double().cpu() for name, parameter in graph.module.named_parameters()}
    ours = {name: start[name] - entries["master"].double() for name, entries in state.items()}
    size = distance(exact[1], {name: 0 * value for name, value in exact[1].items()})
    print(f"{name}: loss {value} ({theirs[0]} plain, {exact[0]} in float32), gradients off by {distance(ours, exact[1]) / size:.2e} "
          f"({distance(theirs[1], exact[1]) / size:.2e} plain)")
    assert abs(value - theirs[0]) <= 2**-7 * abs(theirs[0])
    assert distance(ours, exact[1]) <= 1.1 * distance(theirs[1], exact[1])


@needs_gpu
@pytest.mark.parametrize("graphs, kernels", [("none", "eager"), ("step", "inductor")])
def test_float8_is_what_the_cpu_emulates(graphs, kernels, tmp_path):
    """Much nearer to it than to what comes out without float8."""
    schedule = lambda: piper.Schedule().mesh(pp=2).split(2).place({}, along="pp", stages=2)
    in_float8 = lambda: schedule().precision({"layer": "*"}, matmul="float8").use("1f1b")
    wide = transformers.LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                                    num_key_value_heads=2, max_position_embeddings=32)
    batch, found = batches(1)[0], {}
    for on, written in (("cuda", in_float8()), ("cpu", in_float8()), ("without", schedule().use("1f1b"))):
        graph = capture(language_models.build(wide, torch.bfloat16), on="cpu" if on == "cpu" else "cuda")
        options = dict(graphs=graphs, kernels=kernels, kernel_cache=str(tmp_path)) if on == "cuda" else {}
        with piper.Trainer(graph, written, optimizer=piper.SGD(lr=1.0, gradients="float32", master="float32"), **options) as trainer:
            trainer.step(batch)
            state = trainer.optimizer_state_dict()["state"]
        found[on] = {name: parameter.detach().double().cpu() - state[name]["master"].double() for name, parameter in graph.module.named_parameters()}
    size = distance(found["cpu"], {name: 0 * value for name, value in found["cpu"].items()})
    near, far = (distance(found["cuda"], found[other]) / size for other in ("cpu", "without"))
    print(f"gradients off by {near:.2e}, by {far:.2e} without float8")
    assert near < 0.5 * far


@needs_gpu
@needs_reference
@pytest.mark.parametrize("title", ["one device in turn", "dualpipev, zero 2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_graphs_change_no_bit(reference, dtype, title):  # noqa: F811
    of = case(reference, False, dtype)
    runs = {}
    for graphs in ("none", "chunk", "step"):
        options = dict(optimizer=piper.AdamW(**plain.settings_for(of.model)), graphs=graphs, deterministic=True)
        with piper.Trainer(of.graph, schedules.dense()[title][0], **options) as trainer:
            results = [trainer.step(batch) for batch in of.batches]
            runs[graphs] = [result[:3] for result in results], trainer.state_dict()
            assert "arena" in trainer.table()
    for graphs in ("chunk", "step"):
        assert runs[graphs][0] == runs["none"][0]
        for name, value in runs["none"][1].items():
            assert torch.equal(runs[graphs][1][name], value), (graphs, name)


@needs_gpu
def test_attention_of_cudnn_in_graphs():
    """Its backward adds up in any order, so bits differ from run to run, with and without graphs. But losses do not, while weights stay, and
    gradients in graphs are as far from float32 as without. With beta1 = 0 the first moment is the last step's gradient."""
    sizes = dict(vocab_size=256, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=256)
    model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**sizes), dtype=torch.bfloat16).train()
    integration.use(model)
    integration.annotate(model)
    ids = torch.randint(0, 256, (8, 256))
    batch = {"input_ids": ids, "labels": ids}
    _, exact = gradients(copy.deepcopy(model).float(), batch, loss)
    graph = piper.capture(model, batch, loss=loss, on="cuda")
    kept = piper.AdamW(lr=0.0, betas=(0.0, 0.9), weight_decay=0.0, gradients="float32", master="float32")
    losses, off = set(), {}
    for graphs in ("none", "chunk", "step"):
        with piper.Trainer(graph, optimizer=kept, graphs=graphs) as trainer:
            losses.update(trainer.step(batch).loss for _ in range(5))
            state = trainer.optimizer_state_dict()["state"]
        off[graphs] = distance({name: entries["exp_avg"].double() for name, entries in state.items()}, exact)
    print(off, distance(exact, {name: 0 * value for name, value in exact.items()}))
    assert len(losses) == 1
    assert off["chunk"] == pytest.approx(off["none"], rel=0.02) and off["step"] == pytest.approx(off["none"], rel=0.02)


@needs_gpu
def test_dropout_is_the_same_under_every_schedule_and_in_graphs():
    config = transformers.GPT2Config(vocab_size=62, n_embd=32, n_layer=4, n_head=4, n_positions=32, attn_pdrop=0.0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float64).train()
    graph = capture(model, on="cuda")
    turn = piper.Schedule().devices(1).split(4).place({}, devices=[0])
    runs = [plain.train_piper(graph, schedule, batches(), graphs=graphs)
            for schedule, graphs in ((turn, "none"), (turn, "step"), (piper.schedules.dualpipev(ranks=2, microbatches=4), "chunk"))]
    for run in runs[1:]:
        assert plain.worst(run, runs[0])[0] < 1e-10
    again = plain.train(model, batches(), 4, loss, "cuda")
    assert plain.worst(runs[0], again)[0] > 1e-4  # which draws other numbers


@needs_gpu
def test_dropout_inside_of_attention_is_refused():
    config = transformers.GPT2Config(vocab_size=62, n_embd=32, n_layer=2, n_head=4, n_positions=32, attn_pdrop=0.5)
    model = transformers.AutoModelForCausalLM.from_config(config).train()
    integration.use(model)
    with pytest.raises(piper.CaptureError) as caught:
        piper.capture(model, batches(1)[0], loss=loss, on="cuda")
    assert caught.value.code == "E603" and "attention" in caught.value.message


OPTIMIZERS = {
    "adamw with a mean of the weights": dict(optimizer=piper.AdamW(lr=1e-2, weight_decay=0.1, ema=0.9)),
    "adamw with moments in bfloat16": dict(optimizer=piper.AdamW(lr=1e-2, weight_decay=0.1, moments="bfloat16")),
    "adamw, clipped": dict(optimizer=piper.AdamW(lr=1e-2), clip=0.1),
    "lion": dict(optimizer=piper.Lion(lr=1e-3, weight_decay=0.1)),
    "adafactor": dict(optimizer=piper.Adafactor(lr=3e-2, weight_decay=0.1)),
    "muon": dict(optimizer=piper.Muon(lr=1e-2, weight_decay=0.1, adamw=("head.*",))),
}


def trained_on(on, schedule, options, steps, folder=None, resume=None):
    """Losses, and the whole state after them by name."""
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss, on=on)
    with piper.Trainer(graph, schedule, seed=7, graphs="step" if on == "cuda" else "none", **options) as trainer:
        if resume:
            trainer.resume(resume)
        losses = [trainer.step(small.batch(seed=trainer.steps)).loss for _ in range(steps)]
        if folder:
            trainer.save(folder, wait=True)
        state = dict(trainer.state_dict())
        for name, entries in trainer.optimizer_state_dict()["state"].items():
            state.update({f"{entry} of {name}": value for entry, value in entries.items() if torch.is_tensor(value)})
        if options["optimizer"].ema is not None:
            state.update({f"mean of {name}": value for name, value in trainer.ema_state_dict().items()})
        return losses, state


@needs_gpu
@pytest.mark.parametrize("schedule", updates.SCHEDULES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_equal_those_of_the_cpu(name, schedule):
    runs = [trained_on(on, updates.SCHEDULES[schedule][0], OPTIMIZERS[name], 4) for on in ("cuda", "cpu")]
    difference, where = plain.worst(*runs)
    assert difference < 1e-10, where


@needs_gpu
@pytest.mark.parametrize("to", ["cuda", "cpu"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_goes_on_where_the_other_kind_of_device_left_it(name, to, tmp_path):
    """Under another schedule, too."""
    options, before = OPTIMIZERS[name], {"cuda": "cpu", "cpu": "cuda"}[to]
    expected = trained_on(before, updates.SCHEDULES["zero 3"][0], options, 5)
    trained_on(before, updates.SCHEDULES["1f1b, zero 2"][0], options, 3, folder=tmp_path)
    losses, state = trained_on(to, updates.SCHEDULES["zero 3"][0], options, 2, resume=tmp_path)
    difference, where = plain.worst((losses, state), (expected[0][3:], expected[1]))
    assert difference < 1e-10, where


@needs_gpu
def test_tensors_may_be_on_either_side():
    """Module, example and batches on the GPU give the bits of those on the CPU; so does a state that is loaded."""
    graph, runs = captured_small(on="cuda"), []
    moved = copy.deepcopy(graph.module).cuda()
    piper.annotate_modules(moved, {"layer": "layers.*"})
    there = piper.capture(moved, plain.to("cuda", small.batch()), loss=small.loss, on="cuda")
    for model, device in ((graph, "cpu"), (there, "cuda")):
        with piper.Trainer(model, piper.schedules.one_f_one_b(ranks=2, microbatches=4), devices=2, deterministic=True) as trainer:
            losses = [trainer.step(plain.to(device, small.batch(seed=seed))).loss for seed in range(2)]
            state, kept = trainer.state_dict(), trainer.optimizer_state_dict()
            after = trainer.step(small.batch(seed=2)).loss
            trainer.load_state_dict(plain.to(device, state))
            trainer.load_optimizer_state_dict(
                {**kept, "state": {name: plain.to(device, entries) for name, entries in kept["state"].items()}})
            assert trainer.steps == 2 and trainer.step(small.batch(seed=2)).loss == after
            assert all(value.is_cpu for value in state.values())
            runs.append((losses, after, state))
    assert runs[0][:2] == runs[1][:2] and all(torch.equal(runs[0][2][name], value) for name, value in runs[1][2].items())
    moved.load_state_dict(runs[0][2])
    expected = small.loss(moved, plain.to("cuda", small.batch(seed=2))).item()
    assert runs[0][1] == pytest.approx(expected, rel=1e-6)


@needs_gpu
def test_buffers_that_forward_writes():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    compute = lambda model, batch: model(batch[0]).square().mean()
    given = [(torch.randn(8, 3),) for _ in range(3)]
    graph = piper.capture(model, given[0], loss=compute, on="cuda")
    ours, theirs = plain.train_piper(graph, schedules.ONE, given), plain.train(model, given, 1, compute, "cuda")
    assert plain.worst(ours, theirs)[0] < 1e-5


def start(folder, processes, rest):
    """A script under torchrun."""
    text = f"""
        import sys, torch
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import piper, small
        torch.manual_seed(0)
        model = small.Stack()
        piper.annotate_modules(model, {{"layer": "layers.*"}})
        schedule = piper.Schedule().mesh(pp={processes}).split(4).place({{}}, along="pp", stages={processes})
    """
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text) + textwrap.dedent(rest))
    return subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), str(script)],
                          capture_output=True, text=True, timeout=600, env=dict(os.environ, OMP_NUM_THREADS="1"))


@needs_gpu
def test_a_process_of_torchrun_has_a_gpu_of_its_own(tmp_path):
    """With one card that is one process: found through the store, joined by TCP and, where there were more, by NCCL."""
    done = start(tmp_path, 1, f"""
        options = dict(example_batch=small.batch(), loss=small.loss, on="cuda", deterministic=True)
        with piper.Trainer(model, schedule, backend="tcp", **options) as trainer:
            losses = [trainer.step(small.batch(seed=seed)).loss for seed in range(3)]
            state = trainer.state_dict()
            assert trainer.processes == 1 and trainer.table()
        with piper.Trainer(model, schedule, backend="local", **options) as trainer:
            assert losses == [trainer.step(small.batch(seed=seed)).loss for seed in range(3)]
            assert all(torch.equal(value, state[name]) for name, value in trainer.state_dict().items())
        print("equal")
    """)
    assert done.returncode == 0 and "equal" in done.stdout, done.stderr


@needs_gpu
def test_more_processes_than_gpus_are_refused(tmp_path):
    done = start(tmp_path, torch.cuda.device_count() + 1, """
        piper.Trainer(model, schedule, example_batch=small.batch(), loss=small.loss, on="cuda")
    """)
    assert done.returncode != 0 and "E807" in done.stderr and "there is no GPU left for rank" in done.stderr, done.stderr


@needs_gpu
def test_an_operator_that_fails_ends_the_step():
    """In a process of its own: after this nothing works on the GPU."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import piper, small
        wrong = small.batch()
        wrong["tokens"][0, 0] = 1000  # no such row of the embedding
        trainer = piper.Trainer(small.Stack(), example_batch=small.batch(), loss=small.loss, on="cuda")
        trainer.step(small.batch())
        try:
            trainer.step(wrong)
        except piper.RunError as error:
            print(error.code, error.message)
    """)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.startswith("E801 device 0: op"), (done.stdout, done.stderr)
