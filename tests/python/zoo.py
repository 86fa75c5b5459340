"""A zoo of models: transformers' families with tiny sizes, and our own (zoo_own.py). Each is trained for a step under some schedules, in
float64, and compared with plain PyTorch. docs/models_supported.md is made of the results:

    PYTHONPATH=build/release/python python tests/python/zoo.py --write
"""
import fnmatch
import math
import os
import re
import sys
import types
import warnings
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn as nn
import transformers

import piper
import plain
import zoo_own
from piper.integrations import transformers as integration

transformers.logging.set_verbosity_error()

PAGE = Path(__file__).resolve().parents[2] / "docs/models_supported.md"
SAMPLES, SLICES, LENGTH, WORDS = zoo_own.SAMPLES, 4, 8, 64

# By the names that configurations use for the same thing.
SIZES = {
    32: ("hidden_size", "n_embd", "d_model", "embedding_size", "word_embed_proj_dim", "lru_width", "image_size"),
    WORDS: ("vocab_size", "intermediate_size", "ffn_dim", "d_ff", "n_inner", "ffn_hidden_size", "encoder_ffn_dim", "decoder_ffn_dim",
            "max_position_embeddings", "n_positions", "n_ctx", "max_source_positions", "max_target_positions"),
    16: ("moe_intermediate_size", "shared_expert_intermediate_size", "kv_lora_rank", "q_lora_rank", "mamba_d_head"),
    8: ("head_dim", "d_kv", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "state_size", "mamba_d_state", "rotary_dim", "patch_size",
        "num_mel_bins"),
    4: ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "num_attention_heads", "n_head", "n_heads", "num_heads",
        "encoder_attention_heads", "decoder_attention_heads", "num_experts", "num_local_experts", "n_routed_experts", "mamba_n_heads",
        "time_step_rank"),
    2: ("num_key_value_heads", "num_kv_heads", "num_experts_per_tok", "encoder_layers", "decoder_layers", "mamba_expand", "type_vocab_size"),
    1: ("n_group", "topk_group", "first_k_dense_replace", "mamba_n_groups"),
}
# The same of what has a number for each stage.
STAGES = {16: ("hidden_sizes", "embed_dim", "embed_dims"), 4: ("key_dim",), 2: ("num_heads", "num_attention_heads"), 1: ("depths", "depth")}
SPEECH = dict(conv_dim=(16, 16), conv_stride=(2, 2), conv_kernel=(3, 3), num_feat_extract_layers=2, num_conv_pos_embeddings=4,
              num_conv_pos_embedding_groups=2, mask_time_prob=0.0)
WINDOWS = dict(patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=2)
VISION = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, image_size=32, patch_size=8)


def tiny(kind, **others):
    """The configuration of a family, small and without dropout."""
    config = transformers.CONFIG_MAPPING[kind]
    default = config()
    staged = {name: value for name, value in vars(default).items() if isinstance(value, (list, tuple))}
    chosen = {name: size for size, names in SIZES.items() for name in names
              if hasattr(default, name) and not isinstance(getattr(default, name), (list, tuple))}
    chosen |= {name: [size] * len(staged[name]) for size, names in STAGES.items() for name in names if name in staged}
    chosen |= {name: 0.0 for name, value in vars(default).items() if "drop" in name and isinstance(value, float)}
    if isinstance(getattr(config, "head_dim", None), property):  # it follows from the others
        chosen.pop("head_dim", None)
    usual = dict(use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    chosen |= {name: value for name, value in usual.items() if hasattr(default, name)}
    return config(**{**chosen, **others})


def _words(*sizes):
    return torch.randint(3, WORDS, (SAMPLES, *sizes))


def _text():
    words = _words(LENGTH)
    return {"input_ids": words, "labels": words}


def _pair():
    return {"input_ids": _words(LENGTH), "labels": _words(LENGTH - 2)}


TASKS = {
    "text": (transformers.AutoModelForCausalLM, _text),
    "masked text": (transformers.AutoModelForMaskedLM, _text),
    "text to text": (transformers.AutoModelForSeq2SeqLM, _pair),
    "image": (transformers.AutoModelForImageClassification,
              lambda: {"pixel_values": torch.randn(SAMPLES, 3, 32, 32, dtype=torch.float64), "labels": torch.randint(0, 2, (SAMPLES,))}),
    "speech": (transformers.AutoModelForAudioClassification,
               lambda: {"input_values": torch.randn(SAMPLES, 64, dtype=torch.float64), "labels": torch.randint(0, 2, (SAMPLES,))}),
}

# Families by task.
FAMILIES = {
    "text": ("llama", "qwen3", "gemma2", "gemma3_text", "phi", "phi3", "olmo2", "gpt2", "gptj", "gpt_neox", "gpt_bigcode", "bloom", "opt", "mpt",
             "apertus", "doge", "bamba", "stablelm", "starcoder2", "cohere", "glm4", "granite", "nemotron", "falcon", "openai-gpt", "deepseek_v3", "mixtral", "qwen3_moe",
             "olmoe", "granitemoe", "granitemoehybrid", "gpt_oss", "llama4_text", "jamba", "mamba", "rwkv", "qwen3_5_text"),
    "masked text": ("bert", "roberta", "albert", "electra", "deberta-v2", "mpnet", "convbert", "fnet", "megatron-bert", "nomic_bert", "roformer", "distilbert",
                    "modernbert"),
    "text to text": ("t5", "bart", "pegasus", "m2m_100", "longt5", "mbart", "nllb-moe"),
    "image": ("vit", "beit", "dinov2", "resnet", "convnext"),
    "speech": ("wav2vec2", "hubert", "wavlm", "audio-spectrogram-transformer", "whisper"),
}
# What of their configuration is not in SIZES.
OTHERS = {
    "deepseek_v3": dict(num_key_value_heads=4), "mixtral": dict(sliding_window=None, output_router_logits=True), "mamba": dict(conv_kernel=3),
    "jamba": dict(attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1),
    "mobilebert": dict(embedding_size=16),  # as large as hidden_size it has a projection of no elements
    "resnet": dict(embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], layer_type="basic"),
    "convnext": dict(hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], patch_size=2),
    "convnextv2": dict(patch_size=2),
    "regnet": dict(embedding_size=8, groups_width=8),
    "bit": dict(embedding_size=8, num_groups=4),
    "focalnet": dict(patch_size=4, embed_dim=16),
    "sew": SPEECH | dict(squeeze_factor=2),
    "whisper": dict(max_source_positions=8, encoder_layers=4),
    "audio-spectrogram-transformer": dict(max_length=32, frequency_stride=4, time_stride=4),
}
for others, kinds in ((SPEECH, ("wav2vec2", "hubert", "wavlm", "data2vec-audio", "unispeech", "unispeech-sat", "wav2vec2-conformer")),
                      (WINDOWS, ("swin", "swinv2", "donut-swin")),
                      (dict(vision_config=VISION), ("clip", "metaclip_2", "siglip", "siglip2")),
                      (dict(decoder_start_token_id=0), ("t5", "longt5"))):
    OTHERS |= dict.fromkeys(kinds, others)

# The way out that E317 names: the last projection of the feed-forward, as families call it.
LAST = ("*.down_proj.weight: 1", "*.fc2.weight: 1", "*.fc_out.weight: 1", "*.dense_4h_to_h.weight: 1", "*.mlp.c_proj.weight: 1",
        "*.output_linear.weight: 1", "*.DenseReluDense.wo.weight: 1")
BATCHES = {
    "whisper": lambda: {"input_features": torch.randn(SAMPLES, 8, 16, dtype=torch.float64), "labels": torch.randint(0, 2, (SAMPLES,))},
    "audio-spectrogram-transformer": lambda: {"input_values": torch.randn(SAMPLES, 32, 8, dtype=torch.float64),
                                              "labels": torch.randint(0, 2, (SAMPLES,))},
}
UNKNOWN = ("rwkv",)  # whose layers have no projections that are known
SHORT = ("llama", "mixtral", "bert", "t5", "vit", "whisper", "resnet-groupnorm", "unet", "lstm", "recommender", "fourier")


def _mesh(**axes):
    return piper.Schedule().mesh(**axes).split(SLICES // axes.get("dp", 1)).place({}, mesh={})


def ways():
    """Schedules that all cut the batch into the same slices."""
    return {
        "1F1B": piper.schedules.one_f_one_b(ranks=2, microbatches=SLICES),
        "DualPipeV": piper.schedules.dualpipev(ranks=2, microbatches=SLICES),
        "ZeRO 3": _mesh(dp=2).replicate({}, along="dp", zero=3),
        "tp 2": _mesh(tp=2).shard({"layer": "*"}, along="tp"),
        "ep 2": _mesh(dp=2).replicate({}, along="dp", zero=1).shard({"experts": "*"}, along="dp"),
    }


class Animal:
    """A model with its batch, and what plain PyTorch makes of it."""

    def __init__(self, name, task, model, batch, loss):
        self.name, self.task, self.model, self.batch, self.loss = name, task, model.double().train(), batch, loss
        self.notes = []  # ways out that were taken
        self.is_mixture = any(integration._is_experts(module) for module in model.modules())

    def reference(self):
        """Loss, and gradients by name; None where there is none."""
        parameters = dict(self.model.named_parameters())
        total, sums = 0.0, dict.fromkeys(parameters)
        for part in plain.slices_of(self.batch, SLICES):
            value = self.loss(self.model, part) / SLICES
            trained = {name: p for name, p in parameters.items() if p.requires_grad}
            for name, gradient in zip(trained, torch.autograd.grad(value, list(trained.values()), allow_unused=True)):
                if gradient is not None:
                    sums[name] = gradient if sums[name] is None else sums[name] + gradient
            total += value.item()
        return total, sums

    def capture(self):
        """Captured, on the ways out that refusals name."""
        piper.annotate_modules(self.model, {"layer": layers_of(self.model), **({"experts": self._experts()} if self.is_mixture else {})})
        for _ in range(3):
            try:
                return piper.capture(self.model, self.batch, loss=self.loss)
            except piper.CaptureError as error:
                if not self._take_way_out(error):
                    raise
        raise AssertionError("a way out leads back")

    def _experts(self):
        return [name for name, module in self.model.named_modules() if integration._is_experts(module)]

    def _take_way_out(self, error):
        if error.code == "E608" and "frozen" not in self.notes:  # requires_grad_(False)
            _, gradients = self.reference()
            for name, parameter in self.model.named_parameters():
                if gradients[name] is None:
                    parameter.requires_grad_(False)
            return self.notes.append("frozen") is None
        if error.code == "E601" and self.is_mixture and "slots" not in self.notes:  # a loop over experts
            integration.use(self.model, attention=False)
            return self.notes.append("slots") is None
        experts = [module for module in self.model.modules() if hasattr(module, "num_experts") and isinstance(module, nn.ModuleDict)]
        if error.code == "E601" and experts and "dense" not in self.notes:  # a loop over experts that are modules
            for module in experts:
                module.forward = types.MethodType(_each_on_all_tokens, module)
            return self.notes.append("dense") is None
        if "slots" in self.notes:  # not these experts
            self.model.set_experts_implementation("batched_mm")
            self.notes[self.notes.index("slots")] = "batched"
            return True
        return False


def _each_on_all_tokens(experts, tokens, chosen, weights):
    return sum(expert(tokens) * (weights * (chosen == number)).sum(1, keepdim=True) for number, expert in enumerate(experts.values()))


def layers_of(model):
    """Lists of at least two modules, or of lists, that are in no other such list; where one module is all layers, that."""
    out = [f"{name}.*" for name, _ in model.named_modules() if name.endswith("albert_layer_groups")]
    for name, module in model.named_modules():
        if name and isinstance(module, (nn.ModuleList, nn.Sequential)) and len(module) > 1 and not any(name.startswith(other[:-1]) for other in out):
            out.append(f"{name}.*.*" if all(isinstance(stage, nn.ModuleList) for stage in module) else f"{name}.*")
    return out


def make(name):
    torch.manual_seed(3)
    if name in zoo_own.models():
        model, batch, loss = zoo_own.models()[name]()
        return Animal(name, "own", model, batch, loss)
    task = next(task for task, kinds in FAMILIES.items() if name in kinds)
    return make_family(name, task)


def make_family(kind, task):
    model = TASKS[task][0].from_config(tiny(kind, **OTHERS.get(kind, {})), dtype=torch.float64)
    if any(integration._is_experts(module) for module in model.modules()):
        model.set_experts_implementation("eager")
    return Animal(kind, task, model, BATCHES.get(kind, TASKS[task][1])(), lambda model, batch: model(**batch).loss)


def families(task):
    """All of the task that transformers knows, by name."""
    return sorted({config.model_type for config in TASKS[task][0]._model_mapping.keys()})


def constructed(kind, task, largest=3_000_000):
    """With why not, if not: it needs other sizes, more packages, or other inputs than those of its task; or it is large even so."""
    torch.manual_seed(3)
    try:
        with torch.device("meta"):
            size = sum(p.numel() for p in TASKS[task][0].from_config(tiny(kind, **OTHERS.get(kind, {}))).parameters())
        if size > largest:
            return None, f"{size / 1e6:.0f} million parameters with the sizes of most"
        animal = make_family(kind, task)
        (loss, gradients), (again, _) = animal.reference(), animal.reference()
    except Exception as problem:  # of plain PyTorch
        return None, f"{type(problem).__name__}: {(str(problem) or '-').splitlines()[0][:100]}"
    if not math.isfinite(loss):
        return None, "its loss is not finite"
    if loss != again:
        return None, "it draws random numbers, which plain PyTorch takes from elsewhere"
    return (animal, "") if any(g is not None for g in gradients.values()) else (None, "no parameter has a gradient")


def sweep(task, first="", last="~"):
    """Name and results of every family of the task between two names, or why there are none; printed as it goes."""
    for kind in families(task):
        if not first <= kind <= last:
            continue
        animal, why = constructed(kind, task)
        found = results(animal) if animal else {}
        said = {way: refusal(outcome).code if refusal(outcome) else outcome for way, outcome in found.items()}
        print(f"{task}: {kind}: " + (f"{said} {animal.notes}" if animal else f"not tried: {why}"), flush=True)
        yield kind, found


def names():
    return [*(kind for kinds in FAMILIES.values() for kind in kinds), *zoo_own.models()]


def applies(animal, way):
    if way == "tp 2":
        return "text" in animal.task and animal.name not in UNKNOWN
    return way != "ep 2" or animal.is_mixture


def error_of(animal, ours, reference):
    """Of loss and gradients; those of a parameter against its largest, or what is small beside all others."""
    (loss, state), (expected, gradients) = ours, reference
    largest = max(g.abs().max().item() for g in gradients.values() if g is not None)
    out = (abs(loss - expected) / abs(expected), "loss")
    for name, value in animal.model.named_parameters():
        if gradients[name] is None:
            continue
        difference = (value.detach() - state[name] - gradients[name]).abs().max().item()
        out = max(out, (difference / max(gradients[name].abs().max().item(), 1e-2 * largest), name))
    return out


def results(animal):
    """By way: "right", the refusal, or "WRONG: how"."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = animal.reference()
        try:
            graph = animal.capture()
        except piper.Error as error:
            return {way: error for way in ways() if applies(animal, way)}
        out = {way: run(animal, graph, schedule, reference) for way, schedule in ways().items() if applies(animal, way)}
        if (problem := refusal(out.get("tp 2", ""))) and problem.code in ("E308", "E317") and (last := last_projection(animal)):
            animal.notes.append("named")
            out["tp 2"] = run(animal, graph, _mesh(tp=2).shard({"layer": "*"}, along="tp", parameters=last), reference)
        if (problem := refusal(out.get("ep 2", ""))) and problem.code == "E317":
            animal.notes.append("inside")
            out["ep 2"] = run(animal, graph, _mesh(tp=2).shard({"experts": "*"}, along="tp"), reference)
        return out


def last_projection(animal):
    names = [name for name, _ in animal.model.named_parameters()]
    bert = [f"{name}: 1" for name in names if re.search(r"layer\.\d+\.output\.dense\.weight$", name)]  # attention has one of this name too
    return ", ".join(bert) or next((last for last in LAST if any(fnmatch.fnmatch(name, last.partition(":")[0]) for name in names)), None)


def run(animal, graph, schedule, reference):
    try:
        trainer = piper.Trainer(graph, schedule, optimizer=piper.SGD(lr=1.0))
    except piper.RunError as error:
        return f"WRONG: {error}"
    except piper.Error as error:
        return error
    except Exception as error:
        return f"WRONG: internal error: {error}"
    try:
        with trainer:
            ours = trainer.step(animal.batch).loss, trainer.state_dict()
    except (piper.Error, RuntimeError) as error:
        return f"WRONG: {error}"
    difference, where = error_of(animal, ours, reference)
    return "right" if difference < 1e-5 else f"WRONG: {where} by {difference:.1e}"


def refusal(outcome):
    return None if isinstance(outcome, str) else outcome


def page(rows):
    """docs/models_supported.md from names and results."""
    columns = list(ways())
    out = [HEAD.rstrip("\n"), "", f"| model | task | {' | '.join(columns)} | changes |", "| --- | --- |" + " --- |" * (len(columns) + 1)]
    reasons = {}
    for animal, found in rows:
        cells = []
        for way in columns:
            outcome = found.get(way, "")
            if problem := refusal(outcome):
                reasons.setdefault((problem.code, _generic(problem.message)), []).append(f"{animal.name} ({way})")
                outcome = f"[{problem.code}](errors/{problem.code}.md)"
            cells.append(outcome)
        out.append(f"| {animal.name} | {animal.task} | {' | '.join(cells)} | {', '.join(animal.notes)} |")
    if reasons:
        out += ["", "## What is refused", ""]
        out += [f"- {code}, {message}: {', '.join(who)}." for (code, message), who in sorted(reasons.items())]
    return "\n".join([*out, "", SWEPT])


def _generic(message):
    """Without the names of layers and sizes, of which there are many."""
    return re.sub(r"\b(layer|experts)\.\d+", r"\1", message.splitlines()[0])


HEAD = """# Models that were tried

Tiny configurations of model families of transformers, and models of our own (`tests/python/zoo.py`). Each is trained for a step in float64
under these schedules and compared with plain PyTorch: loss and every gradient must agree to 1e-5. The models' code is not changed.
`tests/python/zoo.py --write` writes this page; `make test` repeats a part of it, the long tests all of it.

- **1F1B**, **DualPipeV**: two pipeline ranks, four microbatches. **ZeRO 3**: two replicas. **tp 2**: `shard` of all layers of text models,
  by the known names of their projections. **ep 2**: `shard` of the experts among two replicas, in mixtures.
- *right*: equal to PyTorch. A code: refused before anything ran. Empty: does not apply.
- Changes: what was changed because an error suggested it. *frozen*: `requires_grad_(False)` for parameters without gradient (E608).
  *slots*: `piper.integrations.transformers.use(model, attention=False)` replaces a loop over experts (E601). *batched*:
  `model.set_experts_implementation("batched_mm")`, for experts that slots do not fit. *named*: attention is not divided, and
  the last projection of the feed-forward is named, as in `shard(..., parameters="*.down_proj.weight: 1")` (E317). *dense*: every expert
  computes all tokens, weighted by the router, instead of a loop over experts that are separate modules (E601).
  *inside*: experts without a declared number cannot be divided among replicas, so each is divided inside, along an axis of its own,
  `mesh(tp=2)` (E317)."""


# Counts are written by hand after a sweep, which takes hours.
SWEPT = """## The sweep over all families

`tests/python/test_zoo.py::test_every_family_that_constructs` tries every family that transformers has for a task, with the sizes above, and
reports the result of each, or why it was not tried. `PIPER_ZOO_TASK=text PIPER_ZOO_FROM=mamba PIPER_ZOO_TO=olmo` selects a part of it. On
x86-64, with transformers 5.22:

- image: 42 families, 26 tried; 6 have more than 3 million parameters with these sizes, 10 need other sizes, inputs or packages;
- speech: 12 families, 10 tried; 2 need other sizes or inputs;
- text, from mamba to qwen3_5_text: 48 families, 37 tried; 5 have more, 5 need others, and phimoe cannot be compared: its router draws
  random numbers;
- text, from qwen3_moe on: 31 families, 18 tried; 1 has more, 12 need others;
- text, up to gpt2: 71 families, 46 tried; 10 have more, 15 need others. The 32 from gpt_bigcode to longcat_flash were swept with an earlier
  version;
- masked text: 51 families, 40 tried; 5 have more, 6 need others;
- text to text: 37 families, 18 tried; 15 have more, 4 need others.

Those tried were right under every schedule that applies, or refused: E209, fewer layers than stages; E317, no projection is known by its
name (ctrl); E601, numbers decide about what is computed (flaubert, ibert, led, longformer, xlm); E203, layers are called as
`layer.forward(x)` (squeezebert).
"""


def main():
    torch.set_num_threads(1)
    rows = []
    for name in names():
        animal = make(name)
        rows.append((animal, results(animal)))
        print(name, {way: refusal(o).code if refusal(o) else o for way, o in rows[-1][1].items()}, animal.notes, flush=True)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
