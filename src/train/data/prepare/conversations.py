"""Conversations and completions: their text, and which parts of it the loss counts.

A text is (text, [(begin, end), ...]): characters that a model shall learn to write. Everything else it is only given.
"""
from prepare.refusal import Refusal, needed

FIELDS = {"documents": ("text",), "chat": ("messages",), "completions": ("prompt", "completion")}


def texts_of(what, encoding):
    """What makes a text of the values of a document's fields."""
    if what == "chat":
        return Chat(encoding)
    return completion if what == "completions" else document


def must_be_text(place, value, what):
    if not isinstance(value, str):
        raise Refusal("E705", str(place), f"{what} is not a text, but {type(value).__name__}", "--field names the field of the text")
    return value


def document(place, values):
    return must_be_text(place, values[0], "the field"), None


def completion(place, values):
    prompt, answer = must_be_text(place, values[0], "the prompt"), must_be_text(place, values[1], "the completion")
    if not answer:
        raise Refusal("E705", str(place), "the completion is empty", "leave the line out: there is nothing to learn in it")
    return prompt + answer, [(len(prompt), len(prompt) + len(answer))]


class Chat:
    """Conversations in the form that the tokenizer's chat template gives them. The loss counts what the template adds for each message of
    the assistant, after what it writes to ask for one: the answer, and the token that ends it."""

    def __init__(self, encoding):
        template = encoding.settings.get("chat_template")
        if isinstance(template, list):  # several, with names
            template = next((of["template"] for of in template if of["name"] == "default"), None)
        if template is None:
            raise Refusal("E705", "", "the tokenizer has no chat template",
                          "put a chat_template.jinja into its folder, or write prompts and completions and use --as completions")
        self.known = {name: encoding.special(name) or "" for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
        self.template = environment().from_string(template)

    def __call__(self, place, values):
        messages = values[0]
        if not isinstance(messages, list) or not all(isinstance(of, dict) and "role" in of and "content" in of for of in messages):
            raise Refusal("E705", str(place), "the conversation is not a list of messages with role and content",
                          "{\"messages\": [{\"role\": \"user\", \"content\": \"…\"}, {\"role\": \"assistant\", \"content\": \"…\"}]}")
        text, parts = self.text(place, messages, False), []
        for index, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            asked, answered = self.text(place, messages[:index], True), self.text(place, messages[:index + 1], False)
            if not answered.startswith(asked) or not text.startswith(answered):
                raise Refusal("E705", str(place), f"the chat template writes the messages before message {index + 1} differently once it is there",
                              "with such a template it cannot be told which part of the text is the answer; use --as completions")
            parts.append((len(asked), len(answered)))
        if not parts:
            raise Refusal("E705", str(place), "no message is the assistant's", "leave the conversation out: there is nothing to learn in it")
        return text, parts

    def text(self, place, messages, ask):
        try:
            return self.template.render(messages=messages, add_generation_prompt=ask, tools=None, documents=None, **self.known)
        except Exception as problem:  # of the template
            raise Refusal("E705", str(place), f"the chat template refuses the conversation: {problem}", "is it one that the model was trained for?")


def environment():
    """As transformers has it, but for the date: the same conversations are the same text tomorrow."""
    sandbox = needed("jinja2.sandbox", "a chat template")
    import json

    def raise_exception(message):
        raise ValueError(message)

    out = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    out.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    out.globals["raise_exception"] = raise_exception
    return out
