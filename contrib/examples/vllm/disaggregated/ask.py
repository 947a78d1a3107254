"""The requests of run: wait until both engines serve, send a prompt through the router, twice, and say when the first
token came and how many blocks the decode engine has read from the prefill engine, and how many bytes of them while
they were computed.

    ask.py PORT PREFILL_PID DECODE_PID [...]
"""

import http.client
import json
import sys
import time
import urllib.request

LIMIT = 900  # seconds in which an engine starts
COUNTS = {"vllm:kvcl_loaded_blocks_total": "loaded", "vllm:kvcl_failed_blocks_total": "failed",
          "vllm:kvcl_ahead_bytes_total": "ahead"}


def get(port, path, body=None):
    return urllib.request.urlopen(urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", None if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json"}), timeout=LIMIT)


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait(port, pid):
    until = time.monotonic() + LIMIT
    while True:
        try:
            get(port, "/health").close()
            return
        except (OSError, http.client.HTTPException):
            if not lives(pid) or time.monotonic() > until:
                sys.exit(f"ask: the engine of port {port} has not started")
            time.sleep(0.2)


def ask(port, prompt):
    """(seconds to the first token, to the last, the text)."""
    begun, first, text = time.monotonic(), None, ""
    with get(port, "/v1/completions", {"model": "model", "prompt": prompt, "max_tokens": 8, "temperature": 0,
                                       "stream": True}) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                first = first or time.monotonic() - begun
                text += json.loads(line[6:])["choices"][0]["text"]
    return first or 0.0, time.monotonic() - begun, text


def counts(port):
    """Of the decode engine: blocks."""
    found = dict.fromkeys(COUNTS.values(), 0.0)
    with get(port, "/metrics") as answer:
        for line in answer.read().decode().splitlines():
            name = line.split("{")[0]
            if name in COUNTS:
                found[COUNTS[name]] += float(line.split()[-1])
    return found


def main():
    port, pids = int(sys.argv[1]), sys.argv[2:4]
    for number, pid in enumerate(pids, 1):
        wait(port + number, pid)
    prompt = [(7 * i) % 500 + 3 for i in range(1500)]
    for turn in ("first", "second"):  # the second one finds the engines connected
        prompt[0] += 1
        first, last, text = ask(port, prompt)
        print(f"{turn} request: first token after {first * 1000:.0f} ms, last after {last * 1000:.0f} ms: {text!r}",
              flush=True)
    until, found = time.monotonic() + 30, counts(port + 2)
    while found["loaded"] == 0 and time.monotonic() < until:  # the engine counts when it has a moment
        time.sleep(0.5)
        found = counts(port + 2)
    print(f"the decode engine has read {found['loaded']:.0f} blocks from the prefill engine, {found['failed']:.0f} "
          "failed", flush=True)
    if found["ahead"]:
        print(f"{found['ahead']:.0f} bytes of them while they were computed", flush=True)
    sys.exit(found["loaded"] == 0)


if __name__ == "__main__":
    main()
