"""Float8 against plain PyTorch, where layers round what they multiply as torchao's recipe `rowwise` does."""
import copy

import pytest
import torch

import language_models
import piper
import plain
import schedules
from language_models import WORDS, precise_loss, transformers

SIZES = dict(vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=32)
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=4, n_head=4, n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0,
                                            attn_pdrop=0.0),
    "mixtral": lambda: transformers.MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
}
STAY = ("lm_head", "gate", "router")


def rounded(x, over):
    scale = torch.exp2(torch.ceil(torch.log2(x.abs().amax(over, keepdim=True).float().clamp(min=1e-12) / 448)))
    return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).to(x.dtype) * scale


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, matrix):
        ctx.save_for_backward(x, matrix)
        return rounded(x, 1) @ rounded(matrix, 0)

    @staticmethod
    def backward(ctx, g):
        x, matrix = ctx.saved_tensors
        return rounded(g, 1) @ rounded(matrix.t(), 0), rounded(x.t(), 1) @ rounded(g, 0)


def multiplies(module):
    return isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"


def in_float8(model):
    """A copy that rounds in forward and backward of its layers."""
    model = copy.deepcopy(model)
    for name, module in model.named_modules():
        if not multiplies(module) or name.rpartition(".")[2] in STAY:
            continue

        def forward(x, module=module):
            matrix = module.weight.t() if isinstance(module, torch.nn.Linear) else module.weight
            out = Product.apply(x.flatten(0, -2), matrix).unflatten(0, x.shape[:-1])
            return out if module.bias is None else out + module.bias
        module.forward = forward
    return model


def build(name):
    return language_models.build(CONFIGS[name](), torch.float64)


def layers_in_float8(schedule):
    text = str(schedule).splitlines(keepends=True)
    first = next((i for i, line in enumerate(text) if line.startswith(("use ", "order", "prefetch"))), len(text))
    return piper.Schedule("".join(text[:first]) + "\n" + "precision({layer=*}, matmul=float8)\n" + "".join(text[first:]))


TITLES = ["one device in turn", "recompute", "zero 3", "zb-h1", "dualpipev, zero 2"]


@pytest.mark.parametrize("name, title", [("llama", title) for title in TITLES] + [("gpt2", "zb-h1"), ("mixtral", "dualpipev, zero 2")])
def test_equals_plain_pytorch_that_rounds(name, title):
    schedule, slices = schedules.dense()[title]
    model, batches = build(name), language_models.batches(2)
    graph = language_models.capture(model, loss=precise_loss)
    ours = plain.train_piper(graph, layers_in_float8(schedule), batches)
    # copies of functions of modules would be those of the model they were made for
    torch_model = in_float8(model)
    theirs = train(torch_model, batches, slices)
    plain.assert_equal(ours, theirs, 1e-11)
    exact = plain.train(model, batches, slices, precise_loss)
    assert plain.worst(ours, exact)[0] > 1e-4, "nothing was rounded"


def train(model, batches, slices):
    optimizer = torch.optim.AdamW(model.parameters(), **plain.settings_for(model))
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        total = 0.0
        for part in plain.slices_of(batch, slices):
            value = precise_loss(model, part) / slices
            value.backward()
            total += value.item()
        optimizer.step()
        losses.append(total)
    return losses, {name: value.detach() for name, value in model.state_dict().items()}


def test_losses_follow_bfloat16():
    model, batches = language_models.build(CONFIGS["llama"](), torch.bfloat16), language_models.batches(20)
    graph = language_models.capture(model)
    one = piper.Schedule().devices(1).split(2).place({}, devices=[0])
    with_float8 = plain.train_piper(graph, one.precision({"layer": "*"}, matmul="float8"), batches)[0]
    without = plain.train_piper(graph, piper.Schedule().devices(1).split(2).place({}, devices=[0]), batches)[0]
    assert with_float8 != without
    for a, b in zip(with_float8, without):
        assert abs(a - b) < 0.01 * b


def test_refusals():
    graph = language_models.capture(build("llama"))
    one = piper.Schedule().devices(1).place({}, devices=[0])
    with pytest.raises(piper.ScheduleError, match="E105"):
        one.precision({"layer": "*"}, matmul="float9")
    for what, words in (({"head": "*"}, 'is called "head"'), ({"layer": 9}, "layer=9 does not exist")):
        schedule = piper.Schedule(str(one)).precision(what)
        with pytest.raises(piper.ScheduleError, match=words):
            piper.Trainer(graph, schedule, optimizer=piper.AdamW(lr=1e-3)).close()
