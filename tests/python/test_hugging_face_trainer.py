"""piper.integrations.transformers.Trainer: a script of transformers under a schedule, against a loop in plain PyTorch and against transformers' own."""
import json
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


@pytest.mark.parametrize("dropless, chosen", [(True, "piper_rows"), (None, "piper_slots")])
def test_experts_stay_as_they_were_chosen(dropless, chosen, tmp_path):
    config = transformers.MixtralConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
                                        vocab_size=64, num_local_experts=2)
    module = language_models.build(config)
    if dropless:
        language_models.integration.use(module, dropless=True)
    Trainer(model=module, args=arguments(tmp_path), train_dataset=data())
    assert module.config._experts_implementation == chosen


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
    assert losses == pytest.approx(expected, rel=1e-4), "the first two are those that the checkpoint remembers"
    assert result.global_step == 4 and result.training_loss == pytest.approx(sum(expected[2:]) / 2, rel=1e-4)


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


# ---- what surrounds training


@pytest.mark.parametrize("given", [dict(compute_metrics=print), dict(compute_loss_func=print), dict(optimizers=(torch.optim.AdamW, None)),
                                   dict(model_init=print), dict(preprocess_logits_for_metrics=print), dict(optimizer_cls_and_kwargs=(print, {})),
                                   dict(accumulate=2), dict(seed=1), dict(clip=1.0), dict(sharded=True), dict(example_batch={}),
                                   dict(tokenizer=print), dict(device=2), dict(callbacks=[print]), dict(optimizer=torch.optim.AdamW),
                                   dict(schedule=7), dict(model="gpt2")], ids=lambda given: next(iter(given)))
def test_refuses_arguments_by_name_when_it_is_made(given, tmp_path):
    with pytest.raises(piper.ScheduleError, match=next(iter(given))) as caught:
        Trainer(**{"model": torch.nn.Linear(2, 2), "args": arguments(tmp_path), "train_dataset": data(), **given})
    assert caught.value.code == "E105" and caught.value.help


@pytest.mark.parametrize("given", [dict(save_strategy="best", metric_for_best_model="loss"), dict(lr_scheduler_type="reduce_lr_on_plateau", eval_strategy="steps", eval_steps=1),
                                   dict(eval_strategy="steps")], ids=lambda given: next(iter(given)))
def test_refuses_strategies_when_it_is_made(given, tmp_path):
    with pytest.raises(piper.ScheduleError, match=next(iter(given))) as caught:
        Trainer(model=torch.nn.Linear(2, 2), args=arguments(tmp_path, **given), train_dataset=data())
    assert caught.value.code == "E105" and caught.value.help


def test_arguments_of_transformers_that_say_nothing(tmp_path):
    trainer = Trainer(model=torch.nn.Linear(2, 2), args=arguments(tmp_path), compute_metrics=None, optimizers=(None, None), model_init=None)
    with pytest.raises(piper.ScheduleError, match="an epoch has 5 batches: its last update"):
        Trainer(model=model(), args=arguments(tmp_path, gradient_accumulation_steps=2), train_dataset=data(40)).train()
    assert trainer.is_world_process_zero()


def test_predicts_what_transformers_predicts(tmp_path):
    args = dict(disable_tqdm=True, per_device_eval_batch_size=4)
    for rows in (counted(6), [{"input_ids": row["input_ids"]} for row in counted(6)]):
        theirs = transformers.Trainer(model=deep(), args=arguments(tmp_path, **args)).predict(rows)
        module = deep()
        ours = Trainer(model=module, args=arguments(tmp_path, **args)).predict(rows)
        assert ours.predictions.shape == (6, 8, 64) and ours.predictions == pytest.approx(theirs.predictions, rel=1e-9)
        assert (ours.label_ids == theirs.label_ids).all() if theirs.label_ids is not None else ours.label_ids is None
        assert ("test_loss" in ours.metrics) == ("test_loss" in theirs.metrics) == ("labels" in rows[0])
        assert ours.metrics.get("test_loss", 0) == pytest.approx(theirs.metrics.get("test_loss", 0), rel=1e-6)
        assert set(theirs.metrics) - set(ours.metrics) <= {"test_model_preparation_time"} and module.training
    only_loss = Trainer(model=deep(), args=arguments(tmp_path, prediction_loss_only=True)).predict(counted(8), metric_key_prefix="t")
    assert only_loss.predictions is None and only_loss.label_ids is None and only_loss.metrics["t_loss"] > 0


def tokenizer():
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="?", pad_token="?")


def test_saves_the_model_of_now_with_its_tokenizer(tmp_path, monkeypatch):
    class Save(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 2:
                trainer.save_model(tmp_path / "now")

    module = model()
    args = arguments(tmp_path, save_strategy="steps", save_steps=2)
    trainer = Trainer(model=module, args=args, train_dataset=data(), processing_class=tokenizer(), data_collator=transformers.default_data_collator)
    trainer.add_callback(Save)
    trainer.train()
    saved, checkpoint = (transformers.AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in
                         (tmp_path / "now", tmp_path / "step-00000002"))
    assert all(torch.equal(value, checkpoint[name]) for name, value in saved.items())
    assert not torch.equal(saved["lm_head.weight"], module.state_dict()["lm_head.weight"]), "one step has followed"
    assert transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "now").get_vocab() == {"a": 0, "b": 1, "?": 2}
    assert torch.load(tmp_path / "now" / "training_args.bin", weights_only=False).learning_rate == 1e-2
    import piper.integrations.trainer as own
    monkeypatch.setattr(own._piper, "rank", lambda: 1)
    trainer.save_model(tmp_path / "twice")
    trainer.save_state()
    trainer.save_metrics("eval", {"eval_loss": 1.0})
    assert not (tmp_path / "twice").exists() and not list(tmp_path.glob("*.json")), "that is for rank 0"


def test_saves_a_module_of_pytorch(tmp_path):
    module = torch.nn.Linear(3, 3)
    module.twice = module.weight  # tied
    Trainer(model=module, args=arguments(tmp_path)).save_model()
    safetensors = pytest.importorskip("safetensors.torch")
    assert torch.equal(safetensors.load_file(tmp_path / "model.safetensors")["bias"], module.bias)


def test_metrics_and_state_are_the_files_of_transformers(tmp_path, capsys):
    folders = {Trainer: tmp_path / "ours", transformers.Trainer: tmp_path / "theirs"}
    found = {"eval_loss": 1.23456789, "eval_runtime": 3723.5, "epoch": 1.0}
    for kind, folder in folders.items():
        folder.mkdir()
        trainer = kind(model=torch.nn.Linear(2, 2), args=arguments(folder))
        trainer.log({"loss": 2.0})
        trainer.log_metrics("eval", found)
        trainer.save_metrics("eval", found)
        trainer.save_metrics("train", {"train_loss": 2.0})
        trainer.save_state()
    printed = capsys.readouterr().out
    assert printed.count("***** eval metrics *****") == 2 and printed.count("eval_loss    =     1.2346") == 2
    for name in ("eval_results.json", "train_results.json", "all_results.json"):
        assert (folders[Trainer] / name).read_text() == (folders[transformers.Trainer] / name).read_text()
    ours, theirs = (transformers.TrainerState.load_from_json(folder / "trainer_state.json") for folder in folders.values())
    assert ours.log_history == theirs.log_history == [{"loss": 2.0, "epoch": ours.epoch, "step": 0}]


def test_callbacks_are_added(tmp_path):
    seen = []

    class Late(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            seen.append("theirs")
            with pytest.raises(piper.ScheduleError, match="while the run is on"):
                trainer.add_callback(piper.callbacks.MetricsFile(tmp_path / "late.jsonl"))

        def on_epoch_begin(self, args, state, control, train_dataloader, **_):
            seen.append(len(train_dataloader))

        def on_predict(self, args, state, control, metrics, **_):
            seen.append(sorted(metrics)[0])

    trainer = Trainer(model=model(), args=arguments(tmp_path, eval_strategy="steps", eval_steps=2, max_steps=2), train_dataset=data(),
                      eval_dataset={"long": data(8), "short": data(3)})
    trainer.add_callback(Late)
    trainer.add_callback(piper.callbacks.MetricsFile(tmp_path / "m.jsonl"))
    trainer.train()
    trainer.predict(data(4))
    assert seen == ["theirs", 4, "test_loss"]
    lines = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "step" in line] == [0, 1]
    evaluated = [line["evaluation"] for line in lines if "evaluation" in line]
    losses = [entry[name] for entry in trainer.state.log_history for name in entry if name.endswith("t_loss") or name.endswith("g_loss")]
    assert [(one["steps"], one["tokens"], one["loss"]) for one in evaluated] == [(2, 64, losses[0]), (2, 24, losses[1])]


def test_goes_on_with_another_batch(tmp_path):
    """The state of transformers is that of the run; the position in the data is a count of samples."""
    seen = []

    class Noting(torch.utils.data.Dataset):
        def __init__(self, rows):
            self.rows = rows

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            seen.append(index)
            return self.rows[index]

    def run(size, steps, resume=None):
        args = arguments(tmp_path, save_strategy="steps", save_steps=2, per_device_train_batch_size=size, max_steps=steps)
        trainer = Trainer(model=model(), args=args, train_dataset=Noting(data(32)))
        seen.clear()
        trainer.train(resume_from_checkpoint=resume)
        return trainer, seen[size:]  # the first ones are an example

    first, before = run(8, 2)
    second, after = run(16, 3, True)
    assert sorted(before[:16] + after[16:32]) == list(range(32)), "skipped in the second run: the first 16"
    assert second.state.global_step == 3 and second.state.epoch == 1.0
    assert [entry["step"] for entry in second.state.log_history if "loss" in entry] == [1, 2, 3]
    assert second.state.log_history[:2] == [{**entry} for entry in first.state.log_history[:2]]
    for size, steps in ((32, 4), (16, -1)):
        with pytest.raises(piper.ScheduleError, match="was reached with other batches: 16 samples in 2 steps"):
            run(size, steps, str(tmp_path / "step-00000002"))
