"""Families of transformers under tensor parallelism, against plain PyTorch: fused projections, latent attention, norms over heads, names that are known."""
import importlib

import pytest
import torch

import language_models
import piper
import plain
from language_models import WORDS, integration, loss, transformers

SIZES = dict(vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32)
GROUPED = dict(**SIZES, num_key_value_heads=2)
FALCON = dict(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, hidden_dropout=0.0, attention_dropout=0.0)
FAMILIES = {
    "phi3": lambda: transformers.Phi3Config(**GROUPED, pad_token_id=0),  # qkv_proj of 32, 16 and 16 rows, gate_up_proj
    "neox": lambda: transformers.GPTNeoXConfig(**SIZES, hidden_dropout=0.0, attention_dropout=0.0),
    "olmo2": lambda: transformers.Olmo2Config(**GROUPED),  # norms over all heads
    "falcon": lambda: transformers.FalconConfig(**FALCON, multi_query=False),
    "falcon, grouped": lambda: transformers.FalconConfig(**FALCON, num_kv_heads=2, new_decoder_architecture=True),
    "deepseek": lambda: transformers.DeepseekV3Config(  # latent attention
        **SIZES, num_key_value_heads=4, moe_intermediate_size=16, n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1,
        q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=8, first_k_dense_replace=1),
    "gpt-oss": lambda: transformers.GptOssConfig(
        **GROUPED, head_dim=8, num_local_experts=4, num_experts_per_tok=2, layer_types=["full_attention"] * 2),
    "phi": lambda: transformers.PhiConfig(**GROUPED, resid_pdrop=0.0),
    "starcoder2": lambda: transformers.Starcoder2Config(**GROUPED, residual_dropout=0.0, embedding_dropout=0.0, sliding_window=None),
    "gptj": lambda: transformers.GPTJConfig(vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=32, rotary_dim=4, resid_pdrop=0.0,
                                            embd_pdrop=0.0, attn_pdrop=0.0),
    "glm": lambda: transformers.GlmConfig(**GROUPED, head_dim=8, pad_token_id=0),
}
REFUSED = {"falcon, one key": lambda: transformers.FalconConfig(**FALCON, multi_query=True)}
EAGER = ("gpt-oss", "gptj")  # have no other attention
OFTEN = ("phi3", "neox", "deepseek")


class Precise:
    """torch for code that computes norms and routers in float32 whatever the type of the model, of whose last digits nothing can be said."""
    def __getattr__(self, name):
        return torch.float64 if name == "float32" else getattr(torch, name)


@pytest.fixture(autouse=True)
def precise(monkeypatch):
    for name in ("olmo2", "deepseek_v3"):
        monkeypatch.setattr(importlib.import_module(f"transformers.models.{name}.modeling_{name}"), "torch", Precise())


BATCHES = language_models.batches(2)


def build(name):
    return language_models.build({**FAMILIES, **REFUSED}[name](), torch.float64, "eager" if name in EAGER else "sdpa")


def captured(model, name):
    if name == "gpt-oss":  # its experts have a gate of their own
        model.set_experts_implementation("batched_mm")
    if name not in EAGER:
        return language_models.capture(model)
    integration.annotate(model)
    return piper.capture(model, BATCHES[0], loss=loss)


def schedule(sequence=False, parameters=None):
    more = {"parameters": parameters} if parameters else {}
    return piper.Schedule().mesh(tp=2).split(2).place({}, mesh={}).shard({"layer": "*"}, along="tp", sequence=sequence, **more)


@pytest.mark.parametrize("name, sequence", [
    pytest.param(name, sequence, marks=() if name in OFTEN and not sequence else pytest.mark.long)
    for name in FAMILIES for sequence in (False, True)])
def test_cut_equals_plain_pytorch(name, sequence):
    model = build(name)
    expected = plain.train(model, BATCHES, 2, loss)
    ours = plain.train_piper(captured(model, name), schedule(sequence), BATCHES)
    plain.assert_equal(ours, expected, 1e-10)


def test_a_fused_projection_that_would_be_cut_in_part_is_refused():
    """One key for all heads lies in one projection with the queries: they would be cut, it would be whole."""
    model = build("falcon, one key")
    expected = plain.train(model, BATCHES, 2, loss)
    graph = captured(model, "falcon, one key")
    with pytest.raises(piper.Error) as refused:
        plain.train_piper(graph, schedule(), BATCHES)
    assert refused.value.code == "E317" and "parameters=" in str(refused.value)
    ours = plain.train_piper(graph, schedule(parameters="*.dense_4h_to_h.weight: 1"), BATCHES)  # the way out
    plain.assert_equal(ours, expected, 1e-10)


def test_propagation_ends_where_only_one_projection_is_named():
    model = build("phi3")
    expected = plain.train(model, BATCHES, 2, loss)
    ours = plain.train_piper(captured(model, "phi3"), schedule(parameters="*.down_proj.weight: 1"), BATCHES)
    plain.assert_equal(ours, expected, 1e-10)


class Convolved(torch.nn.Module):
    """Channels are convolved in groups, and scaled by a function of a number that all of them share."""

    def __init__(self, groups, bias):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        self.conv = torch.nn.Conv1d(16, 16, 3, padding=2, groups=groups, bias=bias)
        self.scale = torch.nn.Parameter(torch.zeros(()))

    def forward(self, x):
        inner = self.conv(self.up(x).transpose(1, 2))[..., :x.shape[1]].transpose(1, 2)
        return x + self.down(inner * torch.nn.functional.softplus(self.scale))


class Heads(torch.nn.Module):
    """Heads are scaled by what they sum up to."""

    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x):
        heads = self.up(x).unflatten(-1, (4, 4))
        return x + self.down((heads * heads.logsumexp(-1, keepdim=True).sigmoid()).flatten(-2))


def two_layers(make):
    """Trained by us when it is called, and by plain PyTorch."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(make(), make()).double()
    piper.annotate_modules(model, {"layer": ["0", "1"]})
    batch = torch.randn(4, 6, 8, dtype=torch.float64), torch.randn(4, 6, 8, dtype=torch.float64)
    error = lambda model, batch: torch.nn.functional.mse_loss(model(batch[0]), batch[1])
    ours = lambda: plain.train_piper(piper.capture(model, batch, loss=error), schedule(parameters="*.down.weight: 1"), [batch] * 2)
    return ours, plain.train(model, [batch] * 2, 2, error)


@pytest.mark.parametrize("groups, bias", [(16, True), (8, False), (2, True)])
def test_groups_of_channels_are_divided(groups, bias):
    ours, expected = two_layers(lambda: Convolved(groups, bias))
    plain.assert_equal(ours(), expected, 1e-10)


def test_a_convolution_of_all_channels_is_refused():
    ours, _ = two_layers(lambda: Convolved(1, True))
    with pytest.raises(piper.Error) as refused:
        ours()
    assert refused.value.code == "E317" and "convolution" in str(refused.value)


def test_sums_inside_of_heads_are_computed_where_the_heads_are():
    ours, expected = two_layers(Heads)
    plain.assert_equal(ours(), expected, 1e-10)


class Rotated(torch.nn.Module):
    """Heads of complex numbers are turned, as Llama 4 does with positions."""

    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x):
        heads = torch.view_as_complex(self.up(x).unflatten(-1, (4, 2, 2)))
        turns = torch.view_as_complex(torch.stack([x[..., :1].cos(), x[..., :1].sin()], -1).detach()).unsqueeze(-2)
        return x + self.down(torch.view_as_real(heads * turns).flatten(-3))


class CopiesNothing(Heads):
    """A recording has no calls that change nothing; those of backward belong to the others all the same."""

    def forward(self, x):
        places = torch.zeros(8, dtype=x.dtype, device=x.device)
        for _ in range(4):
            places[8:] = places[:0]
        return super().forward(x + places)


class EachWithEach(torch.nn.Module):
    """Scaled by products of every channel with every other, which no device has."""

    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x):
        inner = self.up(x)
        products = inner.detach().transpose(1, 2) @ inner.detach()
        return x + self.down(inner) * products.tanh().sum((1, 2))[:, None, None]


def test_complex_numbers_are_divided_whole():
    ours, expected = two_layers(Rotated)
    plain.assert_equal(ours(), expected, 1e-10)


def test_calls_that_change_nothing_are_not_counted():
    ours, expected = two_layers(CopiesNothing)
    plain.assert_equal(ours(), expected, 1e-10)


def test_two_sharded_dimensions_of_one_value_are_refused():
    ours, _ = two_layers(EachWithEach)
    with pytest.raises(piper.Error) as refused:
        ours()
    assert refused.value.code == "E317" and "two dimensions of its result [2, 16, 16] would be sharded" in str(refused.value)


def test_devices_that_are_replicas_are_refused_before_anything_else():
    """Not for the first operator that cannot be divided; an axis of its own is the way out."""
    model = torch.nn.Sequential(Convolved(1, True)).double()
    piper.annotate_modules(model, {"layer": "0"})
    batch = torch.randn(4, 6, 8, dtype=torch.float64), torch.randn(4, 6, 8, dtype=torch.float64)
    graph = piper.capture(model, batch, loss=lambda model, batch: torch.nn.functional.mse_loss(model(batch[0]), batch[1]))
    replicas = piper.Schedule().mesh(dp=2).split(2).place({}, mesh={}).replicate({}, along="dp")
    with pytest.raises(piper.Error) as refused:
        piper.Trainer(graph, replicas.shard({"layer": "*"}, along="dp", parameters="*.down.weight: 1"), optimizer=piper.SGD(lr=1.0))
    assert refused.value.code == "E317" and 'devices along "dp" are replicas' in str(refused.value)
    assert "an axis of its own" in refused.value.help[0]
