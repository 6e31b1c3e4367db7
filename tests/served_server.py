"""A toy vLLM: a real HTTP server around a tiny Llama that tokenises letters, writes, and scores its prompt.

Answers /tokenize, /v1/completions (token ids in and out, `prompt_logprobs`), /v1/models and /version in the
format of vLLM. `log` has (path, body) of every request that was answered. after: so many completions, then
503. slow: seconds a completion. shift: another vocabulary. Faults, of other engines: "no ids", "logits".
"""

import json
import threading
import time
from contextlib import contextmanager

import torch
from engine_server import Engine, Handler


def letters(text):
    return [1 + ord(letter) % 19 for letter in text]


class Served(Engine):
    def __init__(self, pair, model, name, context=256, version="0.33.0", after=None, slow=0.0, fault=None,
                 shift=0):
        super().__init__(fault=fault)
        self.RequestHandlerClass = Vllm
        self.pair, self.model, self.name, self.context, self.version = pair, model, name, context, version
        self.after, self.slow, self.shift, self.log = after, slow, shift, []
        self.torch = threading.Lock()  # one forward at a time, as the tests have one core

    def count(self, path):
        return sum(each == path for each, _ in self.log)

    @torch.inference_mode()
    def logprobs(self, tokens):
        logits = self.model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
        return logits if self.fault == "logits" else logits.log_softmax(-1)

    def complete(self, body):
        prompt, text = list(body["prompt"]), []
        assert len(prompt) + body["max_tokens"] <= self.context, "the client must ask for no more than fits"
        generator = torch.Generator().manual_seed(body.get("seed") or 0)
        while len(text) < body["max_tokens"] and not (text and text[-1] in self.pair.eos):
            last = self.logprobs(prompt + text)[-1].exp()
            text.append(int(last.argmax() if body["temperature"] == 0 else
                            torch.multinomial(last, 1, generator=generator)))
        choice = {"index": 0, "text": "", "finish_reason": "stop" if text[-1] in self.pair.eos else "length"}
        if body.get("return_token_ids") and self.fault != "no ids":
            choice["token_ids"] = text
        if (most := body.get("prompt_logprobs")) is not None:
            laws = self.logprobs(prompt)
            choice["prompt_logprobs"] = [None]
            for law, token in zip(laws, prompt[1:], strict=False):
                shown = [token, *law.topk(most).indices.tolist()]
                choice["prompt_logprobs"].append({
                    str(each): {"logprob": law[each].item(), "rank": int((law >= law[each]).sum()),
                                "decoded_token": "?"} for each in shown})
        return {"id": "cmpl", "object": "text_completion", "choices": [choice]}


class Vllm(Handler):
    def do_GET(self):
        served = self.server
        if self.path == "/v1/models":
            data = [{"id": served.name, "object": "model", "max_model_len": served.context}]
            self.send(200, json.dumps({"object": "list", "data": data}))
        elif self.path == "/version" and served.version:
            self.send(200, json.dumps({"version": served.version}))
        else:
            self.send(404, '{"detail":"Not Found"}')

    def answer(self, served, chat, body):
        if self.path == "/tokenize":
            tokens = served.pair.encode(body["messages"]) if "messages" in body else letters(body["prompt"])
            found = {"count": len(tokens), "max_model_len": served.context,
                     "tokens": [1 + (token + served.shift - 1) % 19 for token in tokens]}
        else:
            time.sleep(served.slow)
            with served.lock:
                if served.after is not None and served.count(self.path) >= served.after:
                    return self.send(503, '{"error": {"message": "EngineCore died"}}')
            with served.torch:
                found = served.complete(body)
        with served.lock:
            served.log.append((self.path, body))
        self.send(200, json.dumps(found))


@contextmanager
def serve(*arguments, **options):
    service = Served(*arguments, **options)
    threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield service
    finally:
        service.shutdown()
        service.server_close()
