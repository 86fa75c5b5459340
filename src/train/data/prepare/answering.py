"""A tokenizer for a program that asks line by line: what it is asked and what it answers is JSON."""
import json
import signal
import sys

from prepare.encoding import open_encoding
from prepare.refusal import Refusal


def answer(line):
    print(json.dumps(line), flush=True)


def end_of(encoding):
    try:
        return encoding.end("")
    except Refusal:
        return None


def answer_all(tokenizer):
    """Until nothing more is asked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program ends after its step, and may ask until then
    try:
        encoding = open_encoding(tokenizer)
    except Refusal as problem:
        place = f"{problem.place}: " if problem.place else ""
        return answer({"problem": place + problem.message, "help": problem.help})
    answer({"end": end_of(encoding)})
    for line in sys.stdin:
        asked = json.loads(line)
        if "encode" in asked:
            answer({"found": [tokens for tokens, _ in encoding.encode(asked["encode"])]})
        else:
            answer({"found": encoding.decode(asked["decode"])})
