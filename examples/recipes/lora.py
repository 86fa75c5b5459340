"""Fine-tunes adapters of peft around a pretrained model on conversations, with the loss on the answers only, in a pipeline of two devices whose
halves are replicated; then opens the adapters, and the model with the adapters merged into it, in peft and transformers: both have the
trainer's logits. The pretrained model is made here, so that nothing is downloaded.

    python examples/recipes/lora.py --out run [--small]
"""
import peft
import torch
import transformers

import piper
from finetune import FULL, SMALL, prepare
from piper.integrations import transformers as integration

from recipe import follow, must_be_equal

RATE = {True: 5e-2, False: 2e-3}
"""Of the small and the full form: adapters learn with larger rates than whole models."""


def lora(out, small):
    size = SMALL if small else FULL
    samples = prepare(out, size)
    pretrained = transformers.AutoModelForCausalLM.from_pretrained(out / "pretrained", dtype=torch.float32)
    model = peft.get_peft_model(pretrained, peft.LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    model.print_trainable_parameters()
    integration.use(model)
    integration.annotate(model)
    example = next(iter(samples))
    graph = piper.capture(model, example, loss=lambda model, batch: model(**batch, use_cache=False).loss)
    schedule = piper.schedules.one_f_one_b(ranks=2, microbatches=2, replicas=2, zero=2)
    with piper.Trainer(graph, schedule, optimizer=piper.AdamW(lr=RATE[small], weight_decay=0.0), devices=4) as trainer:
        print(trainer.plan.check())
        results = list(trainer.train(samples, steps=size["steps"]))
        tokens, seconds = size["batch"] * size["sequence"], sorted(result.seconds for result in results)
        print(f"loss {results[0].loss:.3f} -> {results[-1].loss:.3f}, {tokens / seconds[len(seconds) // 2]:,.0f} tokens/s (median)")
        assert results[-1].loss < results[0].loss, "nothing was learned"
        model.load_state_dict(trainer.state_dict())

    model.eval().save_pretrained(out / "adapters")  # adapters only: megabytes
    with torch.no_grad():
        trained = model(example["input_ids"]).logits
        opened = transformers.AutoModelForCausalLM.from_pretrained(out / "pretrained", dtype=torch.float32)
        must_be_equal("pretrained, which training must not change: logits", opened(example["input_ids"]).logits, untouched(model, example))
        opened = peft.PeftModel.from_pretrained(opened, out / "adapters").eval()
        must_be_equal(f"{out / 'adapters'} in peft: logits", trained, opened(example["input_ids"]).logits)
        opened.merge_and_unload().save_pretrained(out / "merged")
        opened = transformers.AutoModelForCausalLM.from_pretrained(out / "merged", dtype=torch.float32).eval()
        must_be_equal(f"{out / 'merged'} in transformers: logits", trained, opened(example["input_ids"]).logits)
    return out / "merged"


def untouched(model, example):
    """Logits without the adapters."""
    with model.disable_adapter():
        return model(example["input_ids"]).logits


if __name__ == "__main__":
    follow(lora, __doc__)
