"""piper.integrations.transformers.Trainer: a script of transformers under a schedule, against a loop in plain PyTorch and against transformers' own."""
import warnings

import pytest
import torch

import piper
import language_models

transformers = language_models.transformers
pytest.importorskip("accelerate")  # transformers' TrainingArguments need it
from piper.integrations.transformers import Trainer  # noqa: E402
from transformers import TrainerCallback, TrainingArguments  # noqa: E402

SCHEDULES = {
    "one device": None,
    "1f1b, zero 2": piper.schedules.one_f_one_b(ranks=2, microbatches=2, replicas=2, zero=2),
}


def model():
    config = transformers.LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=64,
                                      max_position_embeddings=32)
    return language_models.build(config)


def data(samples=32):
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(0, 62, (samples, 8), generator=generator)
    return [{"input_ids": row, "labels": row, "idx": 7} for row in ids]  # a column that no model takes


def arguments(folder, **given):
    usual = dict(output_dir=str(folder), per_device_train_batch_size=8, max_steps=3, learning_rate=1e-2, weight_decay=0.1, warmup_steps=2,
                 logging_steps=1, save_strategy="no", use_cpu=True, seed=5, report_to="none")
    return TrainingArguments(**{**usual, **given})


def plain(folder, accumulate=1, steps=3):
    """The same, written down."""
    args, module = arguments(folder), model()
    decayed = [value for name, value in module.named_parameters() if "norm" not in name]
    others = [value for name, value in module.named_parameters() if "norm" in name]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=1e-2, betas=(0.9, 0.999))
    scheduler = transformers.get_scheduler("linear", optimizer, 2, steps)
    generator, losses, step, epoch = torch.Generator(), [], 0, 0
    while step < steps:
        generator.manual_seed(args.seed + epoch)
        epoch += 1
        order = torch.utils.data.RandomSampler(range(32), generator=generator)
        batches = list(torch.utils.data.DataLoader(data(), 8, sampler=order))
        for first in range(0, len(batches) - accumulate + 1, accumulate):
            if step == steps:
                break
            total = 0.0
            for batch in batches[first:first + accumulate]:
                loss = module(input_ids=batch["input_ids"], labels=batch["labels"]).loss / accumulate
                loss.backward()
                total += loss.item()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append(total)
            step += 1
    return losses, module.state_dict()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_equals_plain_pytorch(schedule, accumulate, tmp_path):
    expected, weights = plain(tmp_path, accumulate)
    module = model()
    trainer = Trainer(model=module, args=arguments(tmp_path, gradient_accumulation_steps=accumulate), train_dataset=data(),
                      schedule=SCHEDULES[schedule])
    result = trainer.train()
    assert [entry["loss"] for entry in trainer.state.log_history if "loss" in entry] == pytest.approx(expected, rel=1e-5)
    assert result.global_step == 3 and result.training_loss == pytest.approx(sum(expected) / 3, rel=1e-5)
    for name, value in module.state_dict().items():
        assert torch.allclose(value, weights[name], rtol=1e-3, atol=1e-4), name


def test_evaluates_saves_and_goes_on(tmp_path):
    expected, _ = plain(tmp_path, steps=4)
    args = dict(max_steps=4, lr_scheduler_type="linear", save_strategy="steps", save_steps=2, eval_strategy="steps", eval_steps=2)
    trainer = Trainer(model=model(), args=arguments(tmp_path, **args), train_dataset=data(), eval_dataset=data(8))
    trainer.train()
    evaluated = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert len(evaluated) == 2 and trainer.evaluate()["eval_loss"] == pytest.approx(evaluated[-1], rel=1e-5)
    again = Trainer(model=model(), args=arguments(tmp_path, **args), train_dataset=data(), eval_dataset=data(8))
    result = again.train(resume_from_checkpoint=str(tmp_path / "step-00000002"))
    losses = [entry["loss"] for entry in again.state.log_history if "loss" in entry]
    assert losses == pytest.approx(expected[2:], rel=1e-4) and result.global_step == 4


def deep():
    """In float64, of which transformers' loss is the rounding to float32."""
    config = transformers.LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=4, num_attention_heads=2, vocab_size=64,
                                      max_position_embeddings=32)
    return language_models.build(config, torch.float64)


def counted(samples, first=0):
    """Samples with different numbers of labels."""
    rows = data(first + samples)[first:]
    for number, row in enumerate(rows):
        row["labels"] = row["labels"].clone()
        row["labels"][:number * 3 % 7] = -100
    return rows


AGAINST = {
    "one device": None,
    "1f1b, zero 2": SCHEDULES["1f1b, zero 2"],
    "dualpipev": piper.schedules.dualpipev(ranks=2, microbatches=4),
    "tp 2": piper.Schedule().mesh(tp=2).split(2).place({}, mesh={}).shard({"layer": "*"}, along="tp"),
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """What transformers' own Trainer logs and ends with: five steps, more than an epoch; two sets, whose last batches are smaller."""
    args = arguments(tmp_path_factory.mktemp("theirs"), disable_tqdm=True, **SAME)
    trainer = transformers.Trainer(model=deep(), args=args, train_dataset=counted(32), eval_dataset=HELD_OUT)
    before, result = trainer.evaluate(), trainer.train()
    return before, result, trainer.state.log_history, trainer.evaluate(counted(8, first=40)), trainer.model.state_dict()


SAME = dict(max_steps=5, logging_steps=2, logging_first_step=True, eval_strategy="steps", eval_steps=3, per_device_eval_batch_size=4)
HELD_OUT = {"long": counted(14, first=32), "short": counted(3, first=50)}


@pytest.mark.parametrize("schedule", AGAINST)
@pytest.mark.thorough
def test_logs_what_transformers_logs(schedule, theirs, tmp_path):
    before, result, history, after, weights = theirs
    module = deep()
    trainer = Trainer(model=module, args=arguments(tmp_path, **SAME), train_dataset=counted(32), eval_dataset=HELD_OUT, schedule=AGAINST[schedule])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is left to the module
        for name, value in (trainer.evaluate() if schedule == "1f1b, zero 2" else {}).items():
            assert name in before and ("loss" not in name or value == pytest.approx(before[name], rel=1e-6)), name
        found = trainer.train()
        assert trainer.evaluate(counted(8, first=40))["eval_loss"] == pytest.approx(after["eval_loss"], rel=1e-6)
    assert found.global_step == result.global_step and found.training_loss == pytest.approx(result.training_loss, rel=1e-6)
    assert [entry["step"] for entry in trainer.state.log_history[:len(history)]] == [entry["step"] for entry in history]
    compared = 0
    for ours, entry in zip(trainer.state.log_history, history):
        for name in set(entry) & {"loss", "eval_long_loss", "eval_short_loss", "train_loss", "learning_rate", "grad_norm", "epoch"}:
            assert ours[name] == pytest.approx(entry[name], rel=1e-6), (name, entry["step"])
            compared += 1
    assert compared > 20
    for name, value in module.state_dict().items():
        assert torch.allclose(value, weights[name], rtol=1e-5, atol=1e-6), name


@pytest.mark.thorough
def test_a_batch_of_another_form_is_left_to_the_module(tmp_path):
    rows = [{"input_ids": row["input_ids"][:5], "labels": row["labels"][:5]} for row in counted(6)]
    args = dict(disable_tqdm=True, per_device_eval_batch_size=4, max_steps=1)
    expected = transformers.Trainer(model=deep(), args=arguments(tmp_path, **args), eval_dataset=rows).evaluate()["eval_loss"]
    trainer = Trainer(model=deep(), args=arguments(tmp_path, **args, eval_on_start=True), train_dataset=counted(8), eval_dataset=rows)
    with pytest.warns(RuntimeWarning, match=r"input_ids is torch.int64 of shape \[5\], in steps torch.int64 of shape \[8\]"):
        trainer.train()
    assert trainer.state.log_history[0]["eval_loss"] == pytest.approx(expected, rel=1e-6)


def test_logs_by_epoch(tmp_path):
    trainer = Trainer(model=model(), args=arguments(tmp_path, max_steps=-1, num_train_epochs=2, logging_strategy="epoch"), train_dataset=data(16))
    trainer.train()
    assert [entry["epoch"] for entry in trainer.state.log_history if "loss" in entry] == [1.0, 2.0]


def test_callbacks_of_both_kinds(tmp_path):
    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = state.global_step == 2
            return control

    told = []
    noted = type("Noted", (piper.callbacks.Callback,), {"on_step": lambda self, trainer, step, numbers: told.append(step)})()
    result = Trainer(model=model(), args=arguments(tmp_path), train_dataset=data(), callbacks=[Stop(), noted]).train()
    assert result.global_step == 2 and told == [0, 1]


@pytest.mark.parametrize("given", [dict(bf16=True), dict(gradient_checkpointing=True), dict(label_smoothing_factor=0.1), dict(optim="adafactor"),
                                   dict(neftune_noise_alpha=5.0), dict(load_best_model_at_end=False, metric_for_best_model="loss"),
                                   dict(torch_compile=True)], ids=lambda given: next(iter(given)))
def test_refuses_what_it_cannot_honour_by_name(given, tmp_path):
    with pytest.raises(piper.ScheduleError, match=list(given)[-1]) as caught:
        Trainer(model=model(), args=arguments(tmp_path, **given), train_dataset=data())
    assert caught.value.code == "E105" and caught.value.help


def test_refuses_data_that_does_not_fit(tmp_path):
    with pytest.raises(piper.ScheduleError, match="no whole number of batches"):
        Trainer(model=model(), args=arguments(tmp_path), train_dataset=data(30)).train()
    with pytest.raises(piper.ScheduleError, match="there is no train_dataset"):
        Trainer(model=model(), args=arguments(tmp_path)).train()
    with pytest.raises(piper.ScheduleError, match="has no length"):
        Trainer(model=model(), args=arguments(tmp_path), train_dataset=iter(data())).train()
