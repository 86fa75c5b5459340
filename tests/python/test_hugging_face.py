"""Checkpoints of `piper train` and folders of transformers: each reads what the other wrote, and both compute the same loss."""
import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers")
PIPER = os.environ["PIPER_PROGRAM"]
VOCABULARY, SEQUENCE, BATCH = 32, 8, 4
SIZES = f"hidden = 16\nlayers = 2\nheads = 4\nvocab = {VOCABULARY}\nseq = {SEQUENCE}\n"
EXPERTS = "kv_heads = 2\nexperts = 4\ntop_k = 2\ncapacity_factor = 2.0\nmoe_ffn = 8\nrouter_aux_loss_coef = 0\n"  # a slot for every token
SIGMOID = ("scoring_func = \"sigmoid\"\nn_group = 2\ntopk_group = 1\nrouted_scaling_factor = 2.5\nrouter_bias_rate = 0.05\nshared_experts = 1\n"
           "dense_layers = 1\ndense_ffn = 24\n")
MODELS = {
    "gpt": 'arch = "gpt"\nffn = 24\ndropout = false\n',
    "gpt-tied": 'arch = "gpt"\nffn = 24\ndropout = false\ntie_embeddings = true\nbias = false\n',
    "llama3": 'arch = "llama3"\nkv_heads = 2\nffn = 24\n',
    "tied": 'arch = "llama3"\nkv_heads = 2\nffn = 24\ntie_embeddings = true\nnorm_eps = 1e-5\nrope_theta = 5e5\n',
    "biased": 'arch = "llama3"\nkv_heads = 2\nffn = 24\nbias = true\n',
    "qwen3-dense": 'arch = "qwen3-dense"\nkv_heads = 2\nffn = 24\nhead_dim = 8\n',
    "qwen3-moe": 'arch = "qwen3-moe"\n' + EXPERTS,
    "qwen3-moe-dropless": 'arch = "qwen3-moe"\n' + EXPERTS.replace("capacity_factor = 2.0", "dropless = true"),
    "qwen3-moe-not-normalized": 'arch = "qwen3-moe"\nnorm_topk_prob = false\n' + EXPERTS,
    "mixtral": 'arch = "mixtral"\n' + EXPERTS,
    "glm4-moe": 'arch = "qwen3-moe"\n' + SIGMOID + EXPERTS.replace("experts = 4", "experts = 8").replace("capacity_factor = 2.0", "capacity_factor = 4.0"),
    "glm4-moe-dropless": 'arch = "qwen3-moe"\nqk_norm = false\n' + SIGMOID + EXPERTS.replace("capacity_factor = 2.0", "dropless = true"),
}
ROUTER_LOSSES = "router_aux_loss_coef = 0.5\nrouter_aux_loss = \"joint\"\nrouter_z_loss_coef = 0.25"
SCHEDULE = "mesh(dp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, mesh={})\nreplicate({}, along=dp, zero=3)\n"


def config(model, steps):
    return (f'[model]\n{SIZES}{MODELS[model]}\n[step]\nbatch = {BATCH}\nweights = "float32"\ngradients = "float32"\n'
            f'[data]\nkind = "reference"\n[run]\nsteps = {steps}\n')


def mix32(x):
    x = (x ^ (x >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    x = (x ^ (x >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    return x ^ (x >> 16)


def tokens(step):
    """Those of the reference decoder."""
    rows = []
    for sample in range(step * BATCH, (step + 1) * BATCH):
        row = [mix32(sample + 1) % VOCABULARY]
        while len(row) <= SEQUENCE:
            row.append((5 * row[-1] + 7) % VOCABULARY)
        rows.append(row)
    return torch.tensor(rows)


def loss_of(module, step):
    row = tokens(step)
    with torch.no_grad():
        logits = module(row[:, :-1]).logits.double()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), row[:, 1:].flatten()).item()


def train(folder, *words, check=True):
    result = subprocess.run([PIPER, "train", "c.toml", "--schedule", "s.piper", *words], cwd=folder, capture_output=True, text=True,
                            env={**os.environ, "NO_COLOR": "1"})
    assert not check or result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr if not check else result.stdout


def losses(folder):
    return {line["step"]: line["loss"] for line in map(json.loads, (folder / "m.jsonl").read_text().splitlines()) if "loss" in line}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "s.piper").write_text(SCHEDULE)
    return tmp_path


@pytest.mark.parametrize("model", MODELS)
def test_transformers_computes_the_loss_of_a_checkpoint(model, folder):
    (folder / "c.toml").write_text(config(model, 4))
    train(folder, "--checkpoints", "run", "--checkpoint-every", "3", "--metrics", "m.jsonl")
    module = transformers.AutoModelForCausalLM.from_pretrained(folder / "run/step-00000003")
    assert loss_of(module, 3) == pytest.approx(losses(folder)[3], rel=1e-6)


@pytest.mark.parametrize("model", MODELS)
def test_a_run_begins_with_weights_of_transformers(model, folder):
    (folder / "c.toml").write_text(config(model, 1))
    train(folder, "--checkpoints", "run")
    torch.manual_seed(1)
    configuration = transformers.AutoConfig.from_pretrained(folder / "run/step-00000001")
    module = transformers.AutoModelForCausalLM.from_config(configuration)
    module.save_pretrained(folder / "theirs")
    output = train(folder, "--init", "theirs", "--metrics", "m.jsonl")
    assert "begins with the weights in theirs" in output
    assert losses(folder)[0] == pytest.approx(loss_of(module, 0), rel=1e-6)


def test_the_bias_of_a_router_moves_by_the_choices_of_transformers(folder):
    """Those of the whole batch, though four slices of it make them, on two devices."""
    (folder / "c.toml").write_text(config("glm4-moe", 1))
    train(folder, "--checkpoints", "first")
    configuration = transformers.AutoConfig.from_pretrained(folder / "first/step-00000001")
    torch.manual_seed(1)
    module = transformers.AutoModelForCausalLM.from_config(configuration)
    with torch.no_grad():
        for name, value in module.named_parameters():
            value.copy_(torch.randn_like(value) / 2 if value.dim() > 1 else value)
    module.save_pretrained(folder / "theirs")
    chosen = {}
    for name, part in module.named_modules():
        if name.endswith("mlp.gate"):
            part.register_forward_hook(lambda part, given, out, name=name: chosen.update({name: out[2]}))
    loss_of(module, 0)
    train(folder, "--init", "theirs", "--checkpoints", "second")
    after = transformers.AutoModelForCausalLM.from_pretrained(folder / "second/step-00000001").state_dict()
    assert len(chosen) == 1  # of two layers one is dense
    for name, choices in chosen.items():
        counts = torch.bincount(choices.flatten(), minlength=8).float()
        assert len(counts.unique()) > 2
        assert torch.equal(after[name + ".e_score_correction_bias"], 0.05 * (counts.mean() - counts).sign())


@pytest.mark.parametrize("model", ["mixtral", "qwen3-moe-dropless"])
def test_losses_of_routers_are_those_of_transformers(model, folder):
    """The load-balance loss is load_balancing_loss_func, the z-loss that of ST-MoE, both of every slice: a sample."""
    text = config(model, 4).replace("router_aux_loss_coef = 0", ROUTER_LOSSES)
    (folder / "c.toml").write_text(text)
    train(folder, "--checkpoints", "run", "--checkpoint-every", "3", "--metrics", "m.jsonl")
    module = transformers.AutoModelForCausalLM.from_pretrained(folder / "run/step-00000003")
    balance, squares = 0.0, 0.0
    for sample in tokens(3):
        with torch.no_grad():
            out = module(sample[None, :-1], output_router_logits=True)
        logits = [layer if torch.is_tensor(layer) else layer[0] for layer in out.router_logits]
        balance += out.aux_loss.item() / BATCH
        squares += sum(layer.logsumexp(-1).square().mean().item() for layer in logits) / BATCH
    line = json.loads((folder / "m.jsonl").read_text().splitlines()[4])
    assert line["step"] == 3
    assert line["metric.aux_loss"] == pytest.approx(balance, rel=1e-5) and line["metric.z_loss"] == pytest.approx(squares, rel=1e-5)
    assert line["loss"] == pytest.approx(loss_of(module, 3) + 0.5 * balance + 0.25 * squares, rel=1e-5)


def test_other_weights_are_refused_or_converted(folder):
    (folder / "c.toml").write_text(config("llama3", 1))
    small = dict(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
                 rms_norm_eps=1e-6, max_position_embeddings=SEQUENCE)
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**small)).to(torch.bfloat16).save_pretrained(folder / "bf16")
    assert "  converted from BF16 to F32\n" in train(folder, "--init", "bf16")
    for name, change, reason in (("wide", {"intermediate_size": 32}, "up_proj.weight has the shape [32, 16], the model's is [24, 16]"),
                                 ("deep", {"num_hidden_layers": 1}, "model.layers.1.input_layernorm.weight is missing"),
                                 ("eps", {"rms_norm_eps": 1e-5}, "rms_norm_eps is 1e-05 in config.json; the model has 1e-06, which norm_eps"),
                                 ("long", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}},
                                  'positions are of the type "linear"')):
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**small, **change})).save_pretrained(folder / name)
        output = train(folder, "--init", name, check=False)
        assert "error[E904]" in output and reason in output, output
    assert "error[E901]" in train(folder, "--init", "nowhere", check=False)


def test_opt_with_a_last_norm_is_refused(folder):
    """Our gpt has none; the tensors of that norm would be left over without a word."""
    (folder / "c.toml").write_text(config("gpt", 1))
    small = dict(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, ffn_dim=24, word_embed_proj_dim=16,
                 max_position_embeddings=SEQUENCE, activation_function="gelu")
    transformers.OPTForCausalLM(transformers.OPTConfig(**small)).save_pretrained(folder / "theirs")
    output = train(folder, "--init", "theirs", check=False)
    assert "error[E904]" in output and "_remove_final_layer_norm is false in config.json; the model has true" in output, output
