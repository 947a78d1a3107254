"""The router of contrib/examples/vllm/disaggregated, between engines that the test plays: what a prefill engine does
not compute costs a request nothing but its time, also if the decode engine waits for it already. No vLLM is needed."""

import contextlib
import http.client
import http.server
import importlib.util
import itertools
import json
import os
import select
import threading
import time

import pytest

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../contrib/examples")
LIMIT = 60
READ = {"do_remote_prefill": True, "kvcl_ahead": True, "kvcl_id": "i", "kvcl_peers": ["a"], "kvcl_blocks": [7]}
OTHER = {**READ, "kvcl_peers": ["b"]}


class Engine(http.server.ThreadingHTTPServer):
    """play(handler, body) answers each request."""

    def __init__(self, play):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.server.asked.append(body.get("kv_transfer_params"))
                play(self, body)

            def log_message(self, *args):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def __exit__(self, *error):
        self.shutdown()
        self.server_close()


def reply(handler, status, text):
    handler.send_response(status)
    handler.end_headers()
    handler.wfile.write(text.encode())


class World:
    """answers: of the prefill engine: a status and a value, or None: it ends the connection. The decode engine reads a
    prompt ahead until `computed`, or its client is gone; `before`: what it says before that. `waits`: it does."""

    def __init__(self, stack):
        self.answers, self.before, self.left = [], "", []
        self.may_answer, self.computed, self.followed, self.waits = (threading.Event() for _ in range(4))
        self.may_answer.set()
        self.prefill, self.decode = (stack.enter_context(Engine(play)) for play in (self.computes, self.generates))
        file = os.path.join(EXAMPLES, "vllm/disaggregated/proxy.py")
        spec = importlib.util.spec_from_file_location("kvcl_test_proxy", file)
        proxy = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(proxy)
        proxy.Handler.prefills, proxy.Handler.decodes = (itertools.cycle([one.url])
                                                         for one in (self.prefill, self.decode))
        follow = proxy.follow
        proxy.follow = lambda *args: (follow(*args), self.followed.set())
        self.router = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), proxy.Handler))
        threading.Thread(target=self.router.serve_forever, args=(0.02,), daemon=True).start()
        stack.callback(self.router.shutdown)

    def computes(self, handler, body):
        answer = self.answers.pop(0)
        assert self.may_answer.wait(LIMIT)
        if "kvcl_id" in body["kv_transfer_params"]:
            assert self.waits.wait(LIMIT)
        if answer is not None:
            reply(handler, answer[0], json.dumps(answer[1]))

    def generates(self, handler, body):
        params = body.get("kv_transfer_params") or {}
        if "kvcl_blocks" in params or not params:
            return reply(handler, 200, "read" if params else "computed")
        reply(handler, 200, self.before)  # vLLM's head comes before the first token
        self.waits.set()
        until = time.monotonic() + LIMIT
        while not self.computed.is_set() and time.monotonic() < until:
            if select.select([handler.connection], [], [], 0.01)[0]:
                return self.left.append(params["kvcl_id"])
        handler.wfile.write(b"read ahead" if self.computed.is_set() else b"waited")

    @contextlib.contextmanager
    def asking(self):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.router.server_address[1])) as connection:
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "p", "stream": True}))
            with connection.getresponse() as answer:
                yield answer

    def ask(self):
        with self.asking() as answer:
            return answer.read().decode()


@pytest.fixture
def world():
    """Of which the router knows where the prefill engine is read."""
    with contextlib.ExitStack() as stack:
        out = World(stack)
        out.answers = [(200, {"kv_transfer_params": READ})]
        assert out.ask() == "read" and out.decode.asked == [READ]
        yield out


def test_both_engines_are_asked_at_once(world):
    world.answers = [(200, {"kv_transfer_params": READ})]
    world.may_answer.clear()
    world.before = "a "
    with world.asking() as answer:
        assert answer.read1() == b"a "  # the prefill engine has not answered
        world.may_answer.set()
        assert world.followed.wait(LIMIT)
        world.computed.set()
        assert answer.read() == b"read ahead"
    assert len(world.decode.asked) == 2 and world.left == []


@pytest.mark.parametrize("answer, then", [
    ((400, {"error": "too long"}), None),
    (None, None),
    ((200, ["no answer of vLLM"]), None),
    ((200, {"kv_transfer_params": None}), None),  # it has ended the request
    ((200, {"kv_transfer_params": OTHER}), OTHER),
], ids=["refused", "killed", "rubbish", "ended", "started anew"])
def test_a_decode_engine_does_not_wait_for_what_does_not_come(world, answer, then):
    world.answers = [answer]
    assert world.ask() == ("read" if then else "computed")
    first, second = world.decode.asked[1:]
    assert second == then
    assert first == {"do_remote_prefill": True, "kvcl_ahead": True, "kvcl_peers": ["a"],
                     "kvcl_id": world.prefill.asked[1]["kvcl_id"]}
    until = time.monotonic() + LIMIT
    while not world.left and time.monotonic() < until:
        time.sleep(0.01)
    assert world.left == [first["kvcl_id"]]  # the engine ends it


def test_an_answer_that_has_begun_goes_on(world):
    world.answers = [(400, {})]
    world.may_answer.clear()
    world.before = "a "
    with world.asking() as answer:
        assert answer.read1() == b"a "
        world.may_answer.set()
        assert world.followed.wait(LIMIT)
        world.computed.set()
        assert answer.read() == b"read ahead"
    assert len(world.decode.asked) == 2 and world.left == []
