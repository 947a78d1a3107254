"""A router for prefill and decode apart: each request goes to a prefill engine, for one token, and then, with the
parameters of that answer, to a decode engine, whose answer the client gets.

    proxy.py PORT PREFILL_URL[,...] DECODE_URL[,...]

A prefill engine that does not answer costs the request nothing but its time: the decode engine computes the prompt.

An engine with "by_layer": "yes" says so in its answer, "kvcl_ahead". From then on its requests get a name here and go
to both engines at once: the decode engine reads each layer while the prefill engine computes the next ones. If the
prefill engine refuses such a request, or ends without having computed it, the decode engine is asked anew at once.
"""

import contextlib
import http.client
import http.server
import itertools
import json
import secrets
import socket
import sys
import threading
import urllib.parse
import urllib.request

PATHS = ("/v1/completions", "/v1/chat/completions")
TIMEOUT = 600  # seconds

peers = {}  # of prefill engines that are read while they compute: their addresses


def prefill(url, body, name=None):
    """The parameters with which a decode engine finds the prompt's KV cache; None: it computes the prompt itself. name:
    of a request that the decode engine has already."""
    asked = {"do_remote_decode": True, **({"kvcl_id": name} if name else {})}
    first = {**body, "max_tokens": 1, "stream": False, "kv_transfer_params": asked}
    for other in ("stream_options", "max_completion_tokens", "min_tokens"):
        first.pop(other, None)
    params = None
    try:
        with urllib.request.urlopen(urllib.request.Request(
                url, json.dumps(first).encode(), {"Content-Type": "application/json"}), timeout=TIMEOUT) as answer:
            params = json.load(answer).get("kv_transfer_params")
    except (OSError, ValueError, AttributeError, http.client.HTTPException) as error:
        print(f"proxy: {url}: {error}", file=sys.stderr, flush=True)
    peers[url] = addresses(params)  # a new engine has new ones
    return params


def addresses(params):
    """Of a prefill engine that is read while it computes, by its answer; otherwise None."""
    return params.get("kvcl_peers") if params and params.get("kvcl_ahead") else None


class Decode:
    """A request to a decode engine. The engine can be asked anew until the first bytes of its answer are here: closing
    the connection ends the earlier request there."""

    def __init__(self, url, body):
        self.url, self.body, self.params = urllib.parse.urlsplit(url), body, None
        self.lock, self.turn, self.socket, self.begun = threading.Lock(), 0, None, False

    def again(self, params):
        """Ask with other parameters, if it is not too late. By any thread."""
        with self.lock:
            if self.begun:
                return
            self.params, self.turn = params, self.turn + 1
            if self.socket is not None:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(self.socket, socket.SHUT_RDWR)  # answer() waits for it; also below TLS

    def answer(self):
        """The connection, the answer, and its first bytes."""
        while True:
            with self.lock:
                turn, self.socket = self.turn, None
                body = {**self.body, **({"kv_transfer_params": self.params} if self.params else {})}
            kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
            connection = kind(self.url.netloc, timeout=TIMEOUT)
            failed = answer = data = None
            try:
                connection.connect()
                with self.lock:
                    if turn != self.turn:
                        raise ConnectionAbortedError
                    self.socket = connection.sock
                connection.request("POST", self.url.path, json.dumps(body).encode(),
                                   {"Content-Type": "application/json", "Connection": "close"})
                answer = connection.getresponse()
                data = answer.read1(65536)
            except (OSError, http.client.HTTPException) as error:
                failed = error
            with self.lock:
                self.begun = turn == self.turn
            if self.begun and failed is None:
                return connection, answer, data
            for one in (answer, connection):
                if one is not None:
                    one.close()
            if self.begun:
                raise failed


def begin(url, body, decode):
    """Ask a prefill engine, and give the decode engine its parameters, if need be before the other one has answered."""
    known = peers.get(url)
    if not known:
        decode.params = prefill(url, body)
        return
    name = secrets.token_hex(16)
    decode.params = {"do_remote_prefill": True, "kvcl_ahead": True, "kvcl_id": name, "kvcl_peers": known}
    threading.Thread(target=follow, args=(url, body, name, known, decode), daemon=True).start()


def follow(url, body, name, known, decode):
    """Wait for a prefill engine's answer to a request that the decode engine has."""
    params = prefill(url, body, name)
    if addresses(params) != known:
        decode.again(params)  # nothing comes of what it waits for


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    prefills = decodes = iter(())

    def do_POST(self):
        if self.path not in PATHS:
            return self.send_error(404)
        try:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert isinstance(body, dict)
        except (TypeError, ValueError, AssertionError):
            return self.send_error(400)
        body.pop("kv_transfer_params", None)  # a client's own
        decode = Decode(next(self.decodes) + self.path, body)
        begin(next(self.prefills) + self.path, body, decode)
        try:
            connection, answer, data = decode.answer()
        except (OSError, http.client.HTTPException) as error:
            return self.send_error(502, str(error))
        with contextlib.closing(connection), answer:  # the engine's own refusal, too
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
            self.send_header("Connection", "close")
            self.end_headers()
            while data:
                self.wfile.write(data)
                self.wfile.flush()
                data = answer.read1(65536)
        self.close_connection = True

    def log_message(self, *args):
        pass


def main():
    port, first, second = sys.argv[1:]
    Handler.prefills, Handler.decodes = itertools.cycle(first.split(",")), itertools.cycle(second.split(","))
    http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
