"""transformers models as they are, against plain PyTorch; mixtures of experts against their own loop over experts."""
import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import language_models
import piper
import plain
import schedules
from language_models import WORDS, batches, capture, integration, loss, precise_loss, transformers

SIZES = dict(vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=32)
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, head_dim=8),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=4, n_head=4, n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0,
                                            attn_pdrop=0.0),
    "qwen3-moe": lambda: transformers.Qwen3MoeConfig(**SIZES, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16),
    "mistral": lambda: transformers.MistralConfig(**SIZES, sliding_window=6),
    "mixtral": lambda: transformers.MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
}
MIXTURES = ("qwen3-moe", "mixtral")
ONE_OF_EACH = [name if name in ("llama", "mixtral") else pytest.param(name, marks=pytest.mark.long) for name in CONFIGS]


def build(name, dtype=torch.float32):
    return language_models.build(CONFIGS[name](), dtype)


_plain, _graphs = {}, {}


def plain_run(name, dtype, slices, on="cpu"):
    key = name, dtype, slices, on
    if key not in _plain:
        _plain[key] = plain.train(build(name, dtype), batches(), slices, loss, on)
    return _plain[key]


def captured(name, dtype, on="cpu"):
    key = name, dtype, on
    if key not in _graphs:
        _graphs[key] = capture(build(name, dtype), on=on)
    return _graphs[key]


@pytest.mark.parametrize("title", ["one device in turn", "dualpipev, zero 2"])
def test_losses_in_blocks_of_tokens_and_fewest_saved(title):
    """What the library computes of its logits is recognised, with labels that are left out."""
    graph = capture(build("llama", torch.float32), loss_block=7, saved_activations="fewest")
    assert "piper::logits_in_blocks_backward" in graph.operators() and "aten::_log_softmax" not in graph.operators()
    schedule, slices = schedules.dense()[title]
    difference, where = plain.worst(plain.train_piper(graph, schedule, batches()), plain_run("llama", torch.float32, slices))
    assert difference < 1e-5, where


def test_words_of_losses_in_blocks():
    for options, words in ((dict(loss_block=-1), "loss_block"), (dict(saved_activations="few"), 'saved_activations is "few"')):
        with pytest.raises(piper.ScheduleError, match=words):
            capture(build("llama", torch.float32), **options)


def cases():
    for name in CONFIGS:
        # the others take minutes; qwen3 is as llama, qwen3-moe as mixtral
        usual = {"llama": "dualpipev, zero 2", "gpt2": "dualpipev, zero 2", "mixtral": "dualpipev, experts"}.get(name)
        for title, (schedule, slices) in {**schedules.dense(), **(schedules.experts() if name in MIXTURES else {})}.items():
            yield pytest.param(name, schedule, slices, id=f"{name}: {title}", marks=() if title == usual else pytest.mark.long)


@pytest.mark.parametrize("name, schedule, slices", list(cases()))
def test_equals_plain_pytorch(name, schedule, slices):
    ours = plain.train_piper(captured(name, torch.float32), schedule, batches())
    plain.assert_equal(ours, plain_run(name, torch.float32, slices), 1e-5)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_equals_plain_pytorch_in_float64(name):
    schedule, slices = (schedules.experts() if name in MIXTURES else schedules.dense())["1f1b, experts, zero 1" if name in MIXTURES
                                                                                       else "1f1b, zero 1"]
    ours = plain.train_piper(captured(name, torch.float64), schedule, batches())
    plain.assert_equal(ours, plain_run(name, torch.float64, slices), 1e-10)


@pytest.mark.parametrize("name, sequence", [
    pytest.param(name, sequence, marks=() if (name, sequence) in (("llama", True), ("gpt2", False)) else pytest.mark.long)
    for name in CONFIGS for sequence in (False, True)])
def test_cut_along_the_projections_that_are_known(name, sequence):
    schedule = (piper.Schedule().mesh(dp=2, tp=2).split(2).place({}, mesh={}).replicate({}, along="dp", zero=1)
                .shard({"layer": "*"}, along="tp", sequence=sequence))
    ours = plain.train_piper(captured(name, torch.float64), schedule, batches())
    plain.assert_equal(ours, plain_run(name, torch.float64, 4), 1e-10)


@pytest.mark.parametrize("name, sequence", [
    pytest.param(name, sequence, marks=pytest.mark.long if name == "qwen3" else ())
    for name in ("llama", "gpt2", "qwen3", "mistral") for sequence in ("gather", "heads")])
def test_tokens_are_divided(name, sequence):
    schedule = (piper.Schedule().mesh(pp=2, dp=2, cp=2).split(2).place({}, along="pp", stages=2).replicate({}, along=["dp", "cp"], zero=2)
                .shard({}, along="cp", sequence=sequence).use("1f1b"))
    graph = capture(build(name, torch.float64), loss=loss_of_next_words)
    ours = plain.train_piper(graph, schedule, batches())
    plain.assert_equal(ours, plain.train(build(name, torch.float64), batches(), 4, loss_of_next_words, "cpu"), 1e-10)


@pytest.mark.parametrize("name", ["llama", *(pytest.param(name, marks=pytest.mark.long) for name in ("gpt2", "qwen3", "mistral"))])
def test_heads_are_divided_among_more_devices_than_keys(name):
    schedule = (piper.Schedule().mesh(pp=2, cp=4).split(4).place({}, along="pp", stages=4, shape="v").replicate({}, along="cp", zero=2)
                .shard({}, along="cp", sequence="heads").use("dualpipev", stages="stage", microbatches="mb"))
    graph = capture(build(name, torch.float64), loss=loss_of_next_words)
    ours = plain.train_piper(graph, schedule, batches())
    plain.assert_equal(ours, plain.train(build(name, torch.float64), batches(), 4, loss_of_next_words, "cpu"), 1e-10)


def loss_of_next_words(model, batch):
    """Labels are shifted, not scores, of which each device has some; the last word counts for nothing."""
    scores = model(input_ids=batch["input_ids"], use_cache=False).logits
    next_words = torch.nn.functional.pad(batch["labels"][:, 1:], (0, 1), value=-100)
    return torch.nn.functional.cross_entropy(scores.flatten(0, 1), next_words.flatten())


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "mixtral" else pytest.mark.long) for name in MIXTURES])
def test_experts_are_sharded_and_cut(name):
    schedule = (piper.Schedule().mesh(ep=2, tp=2).split(2).place({}, mesh={}).replicate({}, along="ep", zero=1)
                .shard({"experts": "*"}, along="ep").shard({"layer": "*"}, along="tp"))
    ours = plain.train_piper(captured(name, torch.float64), schedule, batches())
    plain.assert_equal(ours, plain_run(name, torch.float64, 4), 1e-10)


@pytest.mark.parametrize("name, sequence", [
    pytest.param(name, sequence, marks=() if (name, sequence) == ("gpt2", True) else pytest.mark.long)
    for name in CONFIGS for sequence in (False, True)])
def test_cut_along_the_vocabulary(name, sequence):
    schedule = (piper.Schedule().mesh(dp=2, tp=2).split(2).place({}, mesh={}).replicate({}, along="dp", zero=1)
                .shard({}, along="tp", vocabulary=True, sequence=sequence))
    ours = plain.train_piper(capture(build(name, torch.float64), loss=precise_loss), schedule, batches())
    plain.assert_equal(ours, plain.train(build(name, torch.float64), batches(), 4, precise_loss), 1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_one_device_is_bit_equal(name, dtype):
    graph, batch = captured(name, dtype), batches(1)[0]
    model = copy.deepcopy(graph.module)
    value = loss(model, batch)
    value.backward()
    torch.optim.SGD(model.parameters(), lr=0.5).step()
    with piper.Trainer(graph, optimizer=piper.SGD(lr=0.5)) as trainer:
        assert trainer.step(batch).loss == value.item()
        for key, weight in trainer.state_dict().items():
            assert torch.equal(weight, model.state_dict()[key]), key


@pytest.mark.thorough
def test_dropout_is_the_same_under_every_schedule():
    """However it slices the batch. And it is that of PyTorch with Piper's masks, call by call."""
    config = transformers.GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=4, n_head=4, n_positions=32)
    model = language_models.build(config, torch.float64)
    graph = capture(model, loss=precise_loss)
    runs = [plain.train_piper(graph, schedule, batches(3)) for schedule in (
        piper.Schedule().devices(1).split(4).place({}, devices=[0]), piper.schedules.dualpipev(ranks=2, microbatches=4),
        piper.Schedule().devices(1).split(2).place({}, devices=[0]),
        piper.Schedule().devices(1).split(4).place({}, devices=[0]).recompute({"layer": "*"}))]
    for run in runs[1:]:
        assert plain.worst(run, runs[0])[0] < 1e-10
    with Masks(step=0, samples=8):
        expected = precise_loss(model, batches(1)[0]).item()
    assert abs(expected - runs[0][0][0]) < 1e-12


class Masks(TorchDispatchMode):
    """Every dropout has the mask that it has in a trainer with seed 0."""

    def __init__(self, step, samples):
        super().__init__()
        self.step, self.samples, self.calls = step, samples, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if not function.name().startswith("aten::bernoulli_"):
            return function(*args, **(kwargs or {}))
        piper._piper.draw_mask(args[0], args[1], self.step, self.calls, 0, self.samples)
        self.calls += 1
        return args[0]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.thorough
def test_every_operator_has_a_scope(name):
    chunks = captured(name, torch.float32).chunks
    assert [c for c in chunks if c.startswith("layer.")][0].startswith("layer.0")
    assert {int(c.split(".")[1]) for c in chunks if c.startswith("layer.")} == {0, 1, 2, 3}


def test_loop_over_experts_is_refused_with_its_line():
    model = build("qwen3-moe")
    integration.annotate(model)
    with pytest.raises(piper.CaptureError) as caught:
        piper.capture(model, batches(1)[0], loss=loss)
    assert caught.value.code == "E601"
    assert "nonzero" in caught.value.message and "layer.0.experts" in caught.value.message
    assert caught.value.place.file.endswith("modeling_qwen3_moe.py")
    assert 'model.set_experts_implementation("batched_mm")' in caught.value.help[-1]  # as the next test does


@pytest.mark.thorough
def test_layers_that_are_skipped_at_random_are_refused_with_the_way_out():
    config = transformers.WhisperConfig(vocab_size=WORDS, d_model=16, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=16, num_mel_bins=4,
                                        max_source_positions=8, decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=16,
                                        pad_token_id=0, encoder_layerdrop=0.5)
    model = transformers.WhisperForAudioClassification(config).train()
    batch = {"input_features": torch.randn(4, 4, 16), "labels": torch.tensor([0, 1, 0, 1])}
    with pytest.raises(piper.CaptureError) as caught:
        piper.capture(model, batch)
    assert caught.value.code == "E601" and "`layerdrop`" in caught.value.help[-1]
    for module in model.modules():
        if hasattr(module, "layerdrop"):
            module.layerdrop = 0.0
    piper.capture(model, batch)


@pytest.mark.thorough
def test_batched_mm_is_captured_but_not_divided():
    model = build("qwen3-moe")
    model.set_experts_implementation("batched_mm")
    integration.annotate(model)
    graph = piper.capture(model, batches(1)[0], loss=loss)
    schedule = piper.Schedule().mesh(dp=2).place({}, mesh={}).replicate({}, along="dp").shard({"experts": "*"}, along="dp")
    with pytest.raises(piper.ScheduleError) as caught:
        piper.compile(graph, schedule)
    assert caught.value.code == "E317" and "take different samples" in str(caught.value) and "number of its experts" in str(caught.value)


def packed(batch):
    """Two documents in every sample, of different lengths from sample to sample."""
    first = torch.arange(4, 4 + len(batch["input_ids"]))[:, None]
    positions = torch.arange(16).expand(len(batch["input_ids"]), 16)
    return {**batch, "position_ids": torch.where(positions < first, positions, positions - first)}


def padded(batch):
    lengths = 16 - torch.arange(len(batch["input_ids"]))[:, None] % 4
    return {**batch, "attention_mask": (torch.arange(16) < lengths).long()}


def unpacked(batch):
    return {**batch, "position_ids": torch.arange(16).expand(len(batch["input_ids"]), 16).contiguous()}


@pytest.mark.parametrize("change", [packed, padded, unpacked], ids=lambda change: change.__name__)
@pytest.mark.parametrize("name", ["llama", pytest.param("gpt2", marks=pytest.mark.long)])
def test_what_a_batch_says_about_attention_is_honoured(name, change):
    several = [change(batch) for batch in batches(3)]
    model = build(name)
    graph = capture(model, several[0])
    assert model.config._attn_implementation == integration.CAUSAL
    schedule, slices = schedules.dense()["1f1b, zero 1"]
    ours = plain.train_piper(graph, schedule, several)
    plain.assert_equal(ours, plain.train(build(name), several, slices, loss), 1e-5)
    without = plain.train(build(name), batches(3), slices, loss)
    assert (plain.worst(ours, without)[0] < 1e-5) == (change is unpacked)


def attentions(graph):
    """Of every layer: whether it is causal without a mask."""
    return ["true" in line for line in graph.operators().splitlines() if "scaled_dot_product" in line and "backward" not in line]


@pytest.mark.parametrize("window", [4, 64])
def test_sliding_windows_are_honoured(window):
    mistral = lambda: language_models.build(transformers.MistralConfig(**SIZES, sliding_window=window), torch.float64)
    graph = capture(mistral())
    schedule, slices = schedules.dense()["1f1b, zero 1"]
    ours = plain.train_piper(graph, schedule, batches(2))
    plain.assert_equal(ours, plain.train(mistral(), batches(2), slices, loss), 1e-10)
    assert attentions(graph) == [window > 16] * 4


def test_plain_causal_attention_has_no_mask():
    """Neither without positions in the batch, which the model then makes itself, nor for one sample."""
    for samples in (8, 1):
        batch = {name: value[:samples] for name, value in batches(1)[0].items()}
        graph = capture(build("llama"), batch)
        assert attentions(graph) == [True] * 4


def test_a_mask_that_the_model_must_have_stays():
    """Falcon asks for it by itself."""
    config = transformers.FalconConfig(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, alibi=False)
    model = transformers.AutoModelForCausalLM.from_config(config)
    integration.use(model)
    assert model.config._attn_implementation == "sdpa"


TWO_LISTS = {
    "t5": (lambda: transformers.T5Config(vocab_size=WORDS, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0,
                                         decoder_start_token_id=0), transformers.AutoModelForSeq2SeqLM),
    "clip": (lambda: transformers.CLIPConfig(
        text_config=dict(vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                         max_position_embeddings=32, eos_token_id=61),
        vision_config=dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=8, patch_size=4),
        projection_dim=16), transformers.AutoModel),
}


@pytest.mark.parametrize("name", TWO_LISTS)
@pytest.mark.thorough
def test_models_with_two_lists_of_layers(name):
    make, kind = TWO_LISTS[name]
    batch = batches(1)[0]
    if name == "clip":
        batch = {"input_ids": batch["input_ids"], "pixel_values": torch.randn(8, 3, 8, 8)}
    given = (lambda model, batch: model(**batch, return_loss=True).loss) if name == "clip" else loss
    graph = capture(kind.from_config(make()), batch, given)
    assert {int(chunk.split(".")[1]) for chunk in graph.chunks if chunk.startswith("layer.")} == {0, 1, 2, 3}


def test_a_model_without_layers_is_told_so():
    with pytest.raises(piper.ScheduleError, match="was not found") as caught:
        integration.annotate(torch.nn.Linear(2, 2))
    assert caught.value.code == "E203" and "annotate_modules" in caught.value.help[0]


@pytest.mark.thorough
def test_capacity_factor_drops_tokens():
    model = build("qwen3-moe")
    integration.use(model, capacity_factor=0.5)
    integration.annotate(model)
    graph = piper.capture(model, batches(1)[0], loss=loss)
    assert graph.unshardable == []
    dropless = plain.train_piper(captured("qwen3-moe", torch.float32), schedules.ONE, batches(1))
    dropping = plain.train_piper(graph, schedules.ONE, batches(1))
    assert dropless[0] != dropping[0]


@pytest.mark.thorough
def test_experts_with_one_slot_are_refused_with_the_way_out():
    """Two microbatches of 32 tokens each, or one of 64."""
    model = build("qwen3-moe", torch.float64)
    integration.use(model, capacity_factor=0.05)
    integration.annotate(model)
    graph = piper.capture(model, batches(1)[0], loss=loss)
    schedule = lambda parts: (piper.Schedule().mesh(dp=2).split(parts).place({}, mesh={}).replicate({}, along="dp")
                              .shard({"experts": "*"}, along="dp"))
    with pytest.raises(piper.ScheduleError) as caught:
        piper.compile(graph, schedule(2))
    assert caught.value.code == "E308" and "one slot" in str(caught.value) and "fewer parts of `split`" in caught.value.help[0]
    plain.assert_equal(plain.train_piper(graph, schedule(1), batches(2)), plain.train(model, batches(2), 2, loss), 1e-5)
