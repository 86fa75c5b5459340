"""Tokenizers: a folder of transformers, a tokenizer.json, or a model of SentencePiece."""
import hashlib
import json
import os

from prepare.refusal import Refusal, needed


def open_encoding(path):
    """tokenizer.json before tokenizer.model, which some folders have both."""
    for name in ("tokenizer.json", "tokenizer.model"):
        if os.path.isdir(path) and os.path.exists(os.path.join(path, name)):
            return open_file(os.path.join(path, name), path)
    if os.path.isfile(path):
        return open_file(path, os.path.dirname(path))
    what = "has neither tokenizer.json nor tokenizer.model" if os.path.isdir(path) else "is not there"
    raise Refusal("E705", path, f"the tokenizer {what}", "name the folder of a model of transformers, a tokenizer.json, or a model of SentencePiece")


def open_file(file, folder):
    return (Tokenizers if file.endswith(".json") else SentencePiece)(file, folder)


class Encoding:
    """`encode` gives for each text its tokens, and for each of them the character where it begins; `decode` gives texts of tokens."""

    def __init__(self, file, folder):
        with open(file, "rb") as opened:
            self.sha256 = hashlib.sha256(opened.read()).hexdigest()
        self.settings = {}
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            path = os.path.join(folder, name)
            if os.path.exists(path):
                with open(path, encoding="utf-8") as opened:
                    self.settings = {**json.load(opened), **self.settings}
        template = os.path.join(folder, "chat_template.jinja")
        if os.path.exists(template):
            with open(template, encoding="utf-8") as opened:
                self.settings["chat_template"] = opened.read()

    def special(self, name):
        """The text of `eos_token` and the like; None: it has none."""
        token = self.settings.get(name)
        return token.get("content") if isinstance(token, dict) else token

    def end(self, wanted):
        """The token after a document. None: there is none."""
        if wanted == "none":
            return None
        text = wanted or self.special("eos_token")
        if text is None and self.own_end() is not None:
            return self.own_end()
        if text is None:
            raise Refusal("E705", "", "the tokenizer does not say which token ends a document", "--end TOKEN names it; --end none: no token does")
        number = self.number(text)
        if number is None:
            raise Refusal("E705", "", f"the tokenizer has no token \"{text}\"", "--end names the token that ends a document")
        return number


class Tokenizers(Encoding):
    def __init__(self, file, folder):
        super().__init__(file, folder)
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # processes are parallel
        try:
            self.tokenizer = needed("tokenizers", "a tokenizer.json").Tokenizer.from_file(file)
        except Refusal:
            raise
        except Exception as problem:  # the library raises nothing more special
            raise Refusal("E705", file, f"the tokenizer cannot be read: {problem}", "is it a tokenizer.json?")
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.vocabulary = max(self.tokenizer.get_vocab(with_added_tokens=True).values()) + 1

    def number(self, text):
        return self.tokenizer.token_to_id(text)

    def own_end(self):
        return None

    def decode(self, tokens):
        return self.tokenizer.decode_batch(tokens, skip_special_tokens=True)

    def encode(self, texts):
        return [(of.ids, [begin for begin, _ in of.offsets]) for of in self.tokenizer.encode_batch(texts, add_special_tokens=False)]


class SentencePiece(Encoding):
    def __init__(self, file, folder):
        super().__init__(file, folder)
        try:
            self.processor = needed("sentencepiece", "a model of SentencePiece").SentencePieceProcessor(model_file=file)
        except (OSError, RuntimeError) as problem:
            raise Refusal("E705", file, f"the tokenizer cannot be read: {problem}", "is it a model of SentencePiece?")
        self.vocabulary = self.processor.get_piece_size()

    def number(self, text):
        number = self.processor.piece_to_id(text)
        return None if number == self.processor.unk_id() else number

    def own_end(self):
        return self.processor.eos_id() if self.processor.eos_id() >= 0 else None

    def decode(self, tokens):
        return [self.processor.decode(ids) for ids in tokens]

    def encode(self, texts):
        return [(of["ids"], [begin for begin, _ in of["offsets"]]) for of in self.processor.encode(texts, return_type="offset_mapping")]
