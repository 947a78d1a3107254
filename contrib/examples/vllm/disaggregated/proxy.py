"""A router for prefill and decode apart: each request goes to a prefill engine, for one token, and then, with the
parameters of that answer, to a decode engine, whose answer the client gets.

    proxy.py PORT PREFILL_URL[,...] DECODE_URL[,...]

A prefill engine that does not answer costs the request nothing but its time: the decode engine computes the prompt.

An engine with "by_layer": "yes" says so in its answer, "kvcl_ahead". From then on its requests get a name here and go
to both engines at once: the decode engine reads each layer while the prefill engine computes the next ones.
"""

import http.client
import http.server
import itertools
import json
import secrets
import sys
import threading
import urllib.error
import urllib.request

PATHS = ("/v1/completions", "/v1/chat/completions")
TIMEOUT = 600  # seconds

peers = {}  # of prefill engines that are read while they compute: their addresses


def post(url, body):
    return urllib.request.urlopen(urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}), timeout=TIMEOUT)


def prefill(url, body, name=None):
    """The parameters with which a decode engine finds the prompt's KV cache; None: it computes the prompt itself. name:
    of a request that the decode engine has already."""
    asked = {"do_remote_decode": True, **({"kvcl_id": name} if name else {})}
    first = {**body, "max_tokens": 1, "stream": False, "kv_transfer_params": asked}
    for other in ("stream_options", "max_completion_tokens", "min_tokens"):
        first.pop(other, None)
    params = None
    try:
        with post(url, first) as answer:
            params = json.load(answer).get("kv_transfer_params")
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"proxy: {url}: {error}", file=sys.stderr, flush=True)
    peers[url] = params["kvcl_peers"] if params and params.get("kvcl_ahead") else None  # a new engine has new ones
    return params


def parameters(url, body):
    """As prefill(), if need be before it has answered."""
    known = peers.get(url)
    if not known:
        return prefill(url, body)
    name = secrets.token_hex(16)
    threading.Thread(target=prefill, args=(url, dict(body), name), daemon=True).start()
    return {"do_remote_prefill": True, "kvcl_ahead": True, "kvcl_id": name, "kvcl_peers": known}


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
        params = parameters(next(self.prefills) + self.path, body)
        body.pop("kv_transfer_params", None)  # a client's own
        if params:
            body["kv_transfer_params"] = params
        try:
            answer = post(next(self.decodes) + self.path, body)
        except urllib.error.HTTPError as error:  # the engine's own refusal
            answer = error
        except OSError as error:
            return self.send_error(502, str(error))
        with answer:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
            self.send_header("Connection", "close")
            self.end_headers()
            while data := answer.read1(65536):
                self.wfile.write(data)
                self.wfile.flush()
        self.close_connection = True

    def log_message(self, *args):
        pass


def main():
    port, first, second = sys.argv[1:]
    Handler.prefills, Handler.decodes = itertools.cycle(first.split(",")), itertools.cycle(second.split(","))
    http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
