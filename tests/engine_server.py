"""A small engine: a real HTTP server that samples from a toy model, speculates, streams and counts.

As vLLM V1 does: the prefill makes the first token; every round drafts k tokens from q and keeps them by
rejection against p; a round's tokens come in one event; /metrics counts what was drafted and accepted.
Faults: "unwritten" (above temperature 0 the verify of positions 1 and up reads memory that nobody wrote, as
vLLM's CPU build does: the second token of a round is noise, position 0 accepts, the rest never), "greedy" (a
wrong token now and then at temperature 0), "dies" (the stream breaks off), "overloaded" (503), "silent"
(answers late), "wordy" (no usage), "error" and "garbage" (an event that is one).

    python tests/engine_server.py --port 8000 --k 3
"""

import argparse
import hashlib
import json
import math
import random
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = [f" w{i}" for i in range(16)]
END = len(WORDS)  # the end of the text


class Engine(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, k=0, fault=None, seed=0, step=0.0, port=0, tilt=0.0, sharp=6.0):
        super().__init__(("127.0.0.1", port), Handler)
        self.k, self.fault, self.step, self.tilt, self.sharp = k, fault, step, tilt, sharp
        self.seed, self.asked, self.lock = seed, Counter(), threading.Lock()
        self.rounds = self.generated = self.under_way = self.peak = 0
        self.positions = [0] * k
        self.bodies = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def metrics(self):
        at = 'engine="0",model_name="toy"'
        lines = [f"vllm:generation_tokens_total{{{at}}} {self.generated}.0"]
        if self.k:
            counts = {"drafts": self.rounds, "draft_tokens": self.rounds * self.k,
                      "accepted_tokens": sum(self.positions)}
            lines += [f"vllm:spec_decode_num_{name}_total{{{at}}} {n}.0" for name, n in counts.items()]
            lines += [f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{at},position="{i}"}} {n}.0'
                      for i, n in enumerate(self.positions)]
        return "\n".join(lines) + "\n"

    def law(self, prompt, text, temperature):
        """p after this text; see `law`."""
        return law(prompt, tuple(text[-1:]), len(text), temperature, self.sharp, self.tilt)

    def generate(self, prompt, max_tokens, temperature):
        """Yields the tokens of the prefill, then of each round."""
        greedy = temperature == 0
        # The n-th request for a prompt is answered alike in every run, whatever else is under way: else a
        # test's outcome would depend on which thread comes first.
        with self.lock:
            self.asked[prompt, temperature] += 1
            rng = random.Random(f"{self.seed} {prompt} {temperature} {self.asked[prompt, temperature]}")
        text = [draw(self.law(prompt, [], temperature), rng, greedy)]
        yield list(text)
        while text[-1] != END and len(text) < max_tokens:
            emitted = self.round(prompt, text, temperature, rng, greedy)[: max_tokens - len(text)]
            if END in emitted:
                emitted = emitted[: emitted.index(END) + 1]
            text += emitted
            yield emitted

    def round(self, prompt, text, temperature, rng, greedy):
        emitted, accepted = [], 0
        for i in range(self.k):
            p = self.law(prompt, text + emitted, temperature)
            q = [0.7 * each + 0.3 / len(p) for each in p]
            draft = draw(p if greedy else q, rng, greedy)
            wrong = draw([0.7, 0.3], rng)
            if greedy and wrong:
                draft = (draft + 1) % END
            if self.fault == "unwritten" and not greedy and i > 0:
                emitted.append(rng.randrange(END))
                break
            if greedy and self.fault == "greedy" and draw([0.9, 0.1], rng):
                emitted.append(draft)
                break
            if (not wrong) if greedy else rng.random() < p[draft] / q[draft]:
                emitted.append(draft)
                accepted += 1
                continue
            residual = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
            emitted.append(draw(p if greedy else [each / sum(residual) for each in residual], rng, greedy))
            break
        else:
            emitted.append(draw(self.law(prompt, text + emitted, temperature), rng, greedy))
        with self.lock:
            self.rounds += bool(self.k)
            for i in range(accepted):
                self.positions[i] += 1
        return emitted


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        if self.path == "/v1/models":
            self.send(200, json.dumps({"object": "list", "data": [{"id": "toy"}]}))
        elif self.path in ("/metrics", "/health"):
            self.send(200, self.server.metrics() if self.path == "/metrics" else "")
        else:
            self.send(404, "no")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        engine, chat = self.server, self.path == "/v1/chat/completions"
        with engine.lock:
            engine.bodies.append(body)
            engine.under_way += 1
            engine.peak = max(engine.peak, engine.under_way)
        try:
            self.answer(engine, chat, body)
        finally:
            with engine.lock:
                engine.under_way -= 1

    def answer(self, engine, chat, body):
        if engine.fault == "overloaded":
            return self.send(503, "queue full")
        if engine.fault == "silent":
            time.sleep(3)
        prompt = json.dumps(body["messages"] if chat else body["prompt"])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if chat:
            self.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        if engine.fault in ("error", "garbage"):
            self.chunk(b"data: " + (b'{"error": {"message": "no"}}' if engine.fault == "error" else b"{")
                       + b"\n\n")
            return self.chunk(b"")
        text = []
        for tokens in engine.generate(prompt, body["max_tokens"], body["temperature"]):
            time.sleep(engine.step)
            text += tokens
            with engine.lock:
                engine.generated += len(tokens)
            if engine.fault == "dies" and len(text) > 2:
                self.close_connection = True
                return self.connection.close()
            self.event({"choices": [self.choice(tokens, text, prompt, body, chat)]})
        self.event({"choices": [{"index": 0, "delta": {}, "text": "",
                                 "finish_reason": "stop" if text[-1] == END else "length"}]})
        if engine.fault != "wordy":
            self.event({"choices": [], "usage": {"completion_tokens": len(text)}})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def choice(self, tokens, text, prompt, body, chat):
        said = "".join(word(token) for token in tokens if token != END)
        choice = {"index": 0, "delta": {"content": said}} if chat else {"index": 0, "text": said}
        if body.get("logprobs"):
            start, pieces = len(text) - len(tokens), []
            for at, token in enumerate(tokens, start):
                p = self.server.law(prompt, text[:at], body["temperature"])
                best = sorted(range(len(p)), key=p.__getitem__, reverse=True)[: body.get("top_logprobs", 3)]
                pieces.append((word(token), math.log(p[token] or 1e-300),
                               {word(each): math.log(p[each]) for each in best}))
            choice["logprobs"] = {"content": [
                {"token": name, "logprob": value,
                 "top_logprobs": [{"token": each, "logprob": lp} for each, lp in top.items()]}
                for name, value, top in pieces]} if chat else {
                "tokens": [piece[0] for piece in pieces], "token_logprobs": [piece[1] for piece in pieces],
                "top_logprobs": [piece[2] for piece in pieces]}
        return choice

    def event(self, event):
        self.chunk(f"data: {json.dumps(event)}\n\n".encode())

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def send(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


@cache
def law(prompt, last, length, temperature, sharp, tilt):
    """p: one likely word, a second, the rest rare; an end from the fourth token on. tilt: to another law."""
    draw = random.Random(hashlib.md5(f"{prompt}{last}{length}".encode()).digest())
    logits = [draw.gauss(0, 1) for _ in WORDS] + [0.0 if length > 3 else -30.0]
    first, second = draw.sample(range(len(WORDS)), 2)
    logits[first], logits[second] = sharp + 2, sharp - 1
    logits[0] += tilt if temperature else 0.0
    weights = [math.exp((logit - max(logits)) / (temperature or 1.0)) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def draw(p, rng, greedy=False):
    """An index of p: the likeliest, or drawn."""
    return max(range(len(p)), key=p.__getitem__) if greedy else rng.choices(range(len(p)), p)[0]


def word(token):
    return "<end>" if token == END else WORDS[token]


@contextmanager
def engine(**options):
    service = Engine(**options)
    threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield service
    finally:
        service.shutdown()
        service.server_close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--k", type=int, default=0)
    parser.add_argument("--step", type=float, default=0.0)
    parser.add_argument("--speculative-config", type=json.loads, default={})
    given = parser.parse_args()
    k = given.speculative_config.get("num_speculative_tokens", given.k)
    print("serving", k, file=sys.stderr)
    Engine(k=k, port=given.port, step=given.step).serve_forever()
