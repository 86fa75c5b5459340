"""Experts of transformers in Piper's slots or on sorted rows: equal to the module's own code, or left alone."""
import copy
import importlib
import inspect
import re
import warnings
from pathlib import Path

import pytest
import torch

import piper

transformers = pytest.importorskip("transformers")
from piper.integrations import transformers as integration  # noqa: E402
from piper.integrations.same_experts import LARGEST, difference  # noqa: E402

import plain  # noqa: E402
import schedules  # noqa: E402
from language_models import precise_loss  # noqa: E402

transformers.logging.set_verbosity_error()

SMALL = dict(hidden_size=16, moe_hidden_size=16, moe_intermediate_size=12, intermediate_size=12, num_experts=4, num_local_experts=4,
             n_routed_experts=4)


def classes():
    """All whose implementation can be chosen, as (module, class)."""
    for path in sorted((Path(transformers.__file__).parent / "models").glob("*/modeling_*.py")):
        for name in re.findall(r"^@use_experts_implementation.*\nclass (\w+)", path.read_text(), flags=re.M):
            yield pytest.param(f"transformers.models.{path.parent.name}.{path.stem}", name, id=name)


def build(module, name, **changes):
    """A small one of the class, from the configuration that its constructor is written for."""
    module = importlib.import_module(module)
    made = getattr(module, name)
    takes = inspect.signature(made.__init__).parameters
    width = {"intermediate_size": 12} if "intermediate_size" in takes else {}
    known = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, transformers.PreTrainedConfig)]
    for kind in sorted(known, key=lambda kind: kind is not takes["config"].annotation):
        config = kind()
        for key, value in {**SMALL, **changes}.items():
            if hasattr(config, key) and not isinstance(getattr(config, key), list):
                setattr(config, key, value)
        try:
            return made(config, **width)
        except (AttributeError, TypeError):  # of another part of the model
            pass
    raise AssertionError(f"no configuration makes a {name}")


@pytest.mark.parametrize("implementation", [integration.slots, integration.rows])
@pytest.mark.parametrize("module, name", list(classes()))
def test_equal_the_modules_own_code(module, name, implementation):
    assert difference(build(module, name), implementation) is None


def deepseek_v4(**changes):
    return build("transformers.models.deepseek_v4.modeling_deepseek_v4", "DeepseekV4Experts", **changes)


def test_difference_is_found():
    """The clamp of DeepSeek-V4, the bias of gpt-oss, the norm of Muse Spark, planted one by one."""

    def without_clamp(self, *batch):
        self.limit, kept = float("inf"), self.limit
        try:
            return integration.slots(self, *batch)
        finally:
            self.limit = kept

    def without(flag):
        def run(self, *batch):
            kept = getattr(self, flag)
            setattr(self, flag, False)
            try:
                return integration.slots(self, *batch)
            finally:
                setattr(self, flag, kept)

        return run

    assert "another" in difference(deepseek_v4(), without_clamp)
    assert "another" in difference(build("transformers.models.gpt_oss.modeling_gpt_oss", "GptOssExperts"), without("has_bias"))
    assert "another" in difference(build("transformers.models.muse_spark.modeling_muse_spark", "MuseSparkExperts"),
                                   without("has_post_expert_norm"))
    assert "cannot be compared" in difference(build("transformers.models.gpt_oss.modeling_gpt_oss", "GptOssExperts"),
                                              without("is_transposed"))


def test_gradient_alone_is_seen():
    def detached(self, tokens, chosen, weights):
        return integration.slots(self, tokens, chosen, weights.detach())

    assert "gradient of routing weights" in difference(deepseek_v4(), detached)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_large_modules_are_compared_by_a_small_one(device):
    with torch.device(device):
        module = deepseek_v4(hidden_size=256, intermediate_size=128, num_local_experts=32, n_routed_experts=32)
    assert sum(value.numel() for value in module.parameters()) > LARGEST
    before = {name: value.shape for name, value in module.state_dict().items()}
    assert difference(module, integration.slots) is None
    assert {name: value.shape for name, value in module.state_dict().items()} == before and module.num_experts == 32


def test_a_token_may_choose_an_expert_twice():
    """As the table of DeepSeek-V4's first layers may say; more choices than tokens do not fit in as many slots."""

    def in_order_of_choices(self, tokens, chosen, weights):
        self.capacity_factor = float(self.num_experts)  # as many slots as tokens, in that order
        try:
            return integration.slots(self, tokens, chosen, weights)
        finally:
            self.capacity_factor = None

    assert difference(deepseek_v4(), integration.slots) is None
    assert "another" in difference(deepseek_v4(), in_order_of_choices)


SIZES = dict(vocab_size=62, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32)
EXPERTS = dict(intermediate_size=16, moe_intermediate_size=16, num_local_experts=4, num_experts_per_tok=2)


def deepseek_v4_model():
    sizes = {**SIZES, **EXPERTS, "num_key_value_heads": 1, "n_routed_experts": 4}
    return transformers.DeepseekV4ForCausalLM(transformers.DeepseekV4Config(
        **sizes, head_dim=8, swiglu_limit=0.05, q_lora_rank=8, o_lora_rank=8, qk_rope_head_dim=4, o_groups=2, index_n_heads=2,
        index_head_dim=8, index_topk=4, sliding_window=8))


def minimax_m3_model():
    from transformers.models.minimax_m3_vl.configuration_minimax_m3_vl import MiniMaxM3VLTextConfig

    return transformers.AutoModelForCausalLM.from_config(MiniMaxM3VLTextConfig(**SIZES, **EXPERTS, head_dim=8, swiglu_limit=0.05),
                                                         attn_implementation="eager")


def muse_spark_model():
    from transformers.models.muse_spark import modeling_muse_spark as muse_spark

    return muse_spark.MuseSparkTextModel(muse_spark.MuseSparkTextConfig(**SIZES, **EXPERTS, head_dim=8, moe_hidden_size=16))


def mean_square(model, batch):
    """Of the last values, which every parameter has a part in."""
    out = model(**batch, use_cache=False)
    return (out.logits if hasattr(out, "logits") else out.last_hidden_state).square().mean()


@pytest.mark.parametrize("make", [pytest.param(deepseek_v4_model, marks=pytest.mark.long), minimax_m3_model, muse_spark_model], ids=lambda make: make.__name__)
def test_whole_models_compute_what_they_compute_themselves(make):
    """With weights so large, and limits so small, that clamps matter."""
    torch.manual_seed(1)
    theirs = make().double().train()
    theirs.set_experts_implementation("eager")
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.randn_like(parameter) / 4)
    batch = {"input_ids": torch.randint(0, 62, (4, 16))}
    value = mean_square(theirs, batch)
    value.backward()
    ours = copy.deepcopy(theirs)
    for (_, parameter), (_, original) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        parameter.requires_grad_(original.grad is not None)  # a short sequence needs no compressor
    integration.use(ours)
    integration.annotate(ours)
    assert ours.config._experts_implementation == integration.SLOTS
    graph = piper.capture(ours, batch, loss=mean_square)
    assert graph.unshardable == []
    with piper.Trainer(graph, optimizer=piper.SGD(lr=1.0)) as trainer:
        assert abs(trainer.step(batch).loss / value.item() - 1) < 1e-9
        state = trainer.state_dict()
    largest = max(parameter.grad.abs().max() for parameter in theirs.parameters() if parameter.grad is not None)
    for name, parameter in theirs.named_parameters():
        if parameter.grad is not None:
            assert ((parameter - parameter.grad - state[name]).abs().max() / largest) < 1e-6, name


def gpt_oss():
    """Its gate clamps, has a bias and is transposed; its attention has sinks, which sdpa does not know."""
    config = transformers.GptOssConfig(**SIZES, head_dim=8, intermediate_size=16, num_local_experts=4, num_experts_per_tok=2,
                                       sliding_window=8, layer_types=["full_attention", "sliding_attention"], swiglu_limit=0.05)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float64).train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) / 4)
    return model


def loss(model, batch):
    return model(**batch, use_cache=False).loss


def test_gpt_oss_is_trained_as_it_is():
    ids = [torch.randint(0, 62, (8, 16)) for _ in range(3)]
    batches = [{"input_ids": one, "labels": one} for one in ids]
    theirs = gpt_oss()
    theirs.set_experts_implementation("eager")
    model = gpt_oss()
    integration.use(model)
    assert model.config._attn_implementation == "eager"
    integration.annotate(model)
    schedule, slices = schedules.experts()["1f1b, experts, zero 1"]
    ours = plain.train_piper(piper.capture(model, batches[0], loss=loss), schedule, batches)
    plain.assert_equal(ours, plain.train(theirs, batches, slices, loss), 1e-5)


class OwnExperts(torch.nn.Module):
    """With weights like those of transformers, and code that cannot be chosen."""

    def __init__(self):
        super().__init__()
        self.num_experts = 2
        self.gate_up_proj = torch.nn.Parameter(torch.randn(2, 4, 8))
        self.down_proj = torch.nn.Parameter(torch.randn(2, 4, 4))

    def forward(self, x):
        return torch.bmm(torch.bmm(x.expand(2, -1, -1), self.gate_up_proj)[..., :4].tanh(), self.down_proj).sum(0)


def test_what_is_not_equal_is_left_alone(monkeypatch):
    config = transformers.MixtralConfig(**SIZES, intermediate_size=16, num_local_experts=4, sliding_window=None)
    model = transformers.AutoModelForCausalLM.from_config(config)
    before = model.config._experts_implementation
    kind = type(model.model.layers[0].mlp.experts)
    monkeypatch.setattr(kind, "_apply_gate", lambda self, given: given.chunk(2, -1)[0])  # which its own loop does not use
    with pytest.warns(piper.CaptureWarning) as said:
        integration.use(model)
    assert len(said) == 1 and "MixtralExperts" in str(said[0].message) and "shard" in str(said[0].message)
    assert model.config._experts_implementation == before
    assert not any(getattr(module, "marks_scope", False) for module in model.modules())


def test_what_cannot_be_chosen_is_left_alone():
    config = transformers.LlamaConfig(**SIZES, intermediate_size=16)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.model.layers[0].mlp.experts = OwnExperts()
    with pytest.warns(piper.CaptureWarning, match="OwnExperts"):
        integration.use(model)
    assert not hasattr(model.model.layers[0].mlp.experts, "marks_scope")


def test_equal_experts_are_taken_without_a_word():
    config = transformers.MixtralConfig(**SIZES, intermediate_size=16, num_local_experts=4, sliding_window=None)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        integration.use(model)
    assert model.config._experts_implementation == integration.SLOTS


def test_rows_have_no_capacity():
    config = transformers.MixtralConfig(**SIZES, intermediate_size=16, num_local_experts=4, sliding_window=None)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with pytest.raises(piper.ScheduleError, match="capacity_factor") as caught:
        integration.use(model, dropless=True, capacity_factor=1.25)
    assert caught.value.code == "E105" and model.config._experts_implementation != integration.ROWS


@pytest.mark.parametrize("name", ["Mixtral", pytest.param("Qwen3Moe", marks=pytest.mark.long)])
def test_sorted_rows_of_transformers_are_trained_as_they_are(name):
    """Its `grouped_mm` experts, in float64 and with widths that PyTorch's own operator refuses."""
    def made(implementation):  # and a configuration, which has the implementation
        config = getattr(transformers, name + "Config")(**SIZES, **{**EXPERTS, "intermediate_size": 9, "moe_intermediate_size": 9},
                                                        num_experts=4, sliding_window=None)
        torch.manual_seed(1)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float64).train()
        model.set_experts_implementation(implementation)
        return model

    ids = [torch.randint(0, 62, (8, 16)) for _ in range(3)]
    batches = [{"input_ids": one, "labels": one} for one in ids]
    model = made("grouped_mm")
    integration.use(model, experts=False)
    integration.annotate(model)
    graph = piper.capture(model, batches[0], loss=precise_loss)
    assert "piper::grouped_mm" in graph.operators() and "aten::_grouped_mm" not in graph.operators() and graph.unshardable == []
    schedule, slices = schedules.dense()["zero 2"]
    ours = plain.train_piper(graph, schedule, batches)
    plain.assert_equal(ours, plain.train(made("eager"), batches, slices, precise_loss), 1e-10)
    with pytest.raises(piper.ScheduleError, match="E317"):  # what they sort is inside of them
        piper.compile(graph, schedules.experts()["experts"][0])


def mixture(name):
    """Of transformers, in float64, and with a router that has preferences."""
    sizes = {**SIZES, **EXPERTS, "num_hidden_layers": 4, "intermediate_size": 12, "moe_intermediate_size": 12, "num_experts": 4}
    if name == "DeepseekV3":  # groups of experts, some of them chosen with a bias; shared experts; the first layer has none
        sizes |= dict(num_key_value_heads=4, n_routed_experts=4, n_shared_experts=1, n_group=2, topk_group=1, first_k_dense_replace=1,
                      q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=8)
    if name == "GptOss":  # biases of experts, gates that clamp
        sizes |= dict(head_dim=8, sliding_window=8, swiglu_limit=0.05)
    torch.manual_seed(1)
    config = getattr(transformers, name + "Config")(**sizes)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float64).train()
    with torch.no_grad():
        for part, value in [*model.named_parameters(), *model.named_buffers()]:
            if any(word in part for word in ("gate.weight", "router.weight", "correction_bias")):
                value.copy_(torch.randn_like(value) / 4)
    return model


def divided():
    """name -> (schedule, slices of one device). Little memory, so that rows go in rounds."""
    few = lambda schedule: schedule.shard({"experts": "*"}, along="ep", buffer=0.25)

    def piped(timeline, stages, **more):
        schedule = piper.Schedule().mesh(pp=2, ep=2).split(4).place({}, along="pp", stages=stages, **more)
        return few(schedule.replicate({}, along="ep", zero=1)).use(timeline, stages="stage", microbatches="mb"), 8

    whole = lambda axes, parts: piper.Schedule().mesh(**axes).split(parts).place({}, mesh={}).replicate({}, along=list(axes))
    return {
        "ep 2": (few(whole({"ep": 2}, 2)), 4),
        "ep 4": (few(whole({"ep": 4}, 1)), 4),
        "dp, ep": (few(whole({"dp": 2, "ep": 2}, 2)), 8),
        "1f1b": piped("1f1b", 2),
        "dualpipev": piped("dualpipev", 4, shape="v"),
    }


@pytest.mark.parametrize("schedule", divided())
@pytest.mark.parametrize("name", ["Mixtral", "Qwen3Moe", "Olmoe", "DeepseekV3", "GptOss"])
def test_sorted_rows_are_divided_among_devices(name, schedule):
    generator = torch.Generator().manual_seed(2)
    batches = [{"input_ids": ids, "labels": ids} for ids in (torch.randint(0, 62, (8, 16), generator=generator) for _ in range(3))]
    theirs = mixture(name)
    theirs.set_experts_implementation("eager")
    model = mixture(name)
    integration.use(model, dropless=True)
    integration.annotate(model)
    assert model.config._experts_implementation == integration.ROWS
    graph = piper.capture(model, batches[0], loss=precise_loss)
    assert graph.unshardable == []
    schedule, slices = divided()[schedule]
    ours = plain.train_piper(graph, schedule, batches)
    assert any("rounds" in line for line in ours[2].text().splitlines())
    plain.assert_equal(ours, plain.train(theirs, batches, slices, precise_loss), 1e-10)
