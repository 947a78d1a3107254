"""The connection of one side of the connector to the store's server. A thread makes it and makes it again; the engine's
threads never wait for it.

Every change is logged once: that there is no store and why, that it was taken up, that it was lost.
"""

import logging
import threading
import time
from typing import Any, Callable, List, Optional, Tuple

import kvcl

from .._introduce import SAYS, explain

ALONE, EACH = 5.0, 1.0  # seconds that connecting to a rank may take: to the only one, and to one of several


class Link:
    """client is a connected StoreClient, or None. Only the engine's thread uses it, through progress() at the latest.

    prepare(context) is called once, in the link's thread, before the first connection: it registers memory. layers: of
    a block, if calls move them one by one.
    """

    def __init__(self, options: Any, log: logging.Logger, text: str, block_bytes: int = 0,
                 prepare: Optional[Callable[[kvcl.Context], None]] = None, layers: int = 0) -> None:
        self._options, self._log, self._text, self._block_bytes = options, log, text, block_bytes
        self._prepare, self._layers = prepare, layers
        self._context: Optional[kvcl.Context] = None
        self._retired: List[kvcl.StoreClient] = []
        self._wake = threading.Event()
        self._closing = False
        self._told = ""
        self._files = options["store"].split(",") if options else []
        self._at = 0  # of the file to begin with
        self.client: Optional[kvcl.StoreClient] = None
        self.connections = 0
        self.tried = threading.Event()  # prepare() has returned, or the first attempt has failed
        self._thread = threading.Thread(target=self._run, name="kvcl.vllm", daemon=True)

    def start(self) -> None:
        """Start connecting."""
        self._thread.start()

    def ready(self) -> Optional[kvcl.StoreClient]:
        """The client, if calls may be posted."""
        client = self.client
        if client is not None and not client.connected:
            self._lose(client)
            return None
        return client

    def progress(self) -> None:
        """Move the calls in flight. Never waits."""
        client = self.client
        if client is not None:
            client.progress()
            if client.connected and len(self._files) > 1 and client.silent > self._options["match_timeout"] / 2:
                client.close()
            if not client.connected:
                self._lose(client)
        if self._retired:
            self._retired = [one for one in self._retired if one.progress()]

    def wait(self, call: kvcl.Call, seconds: float) -> None:
        """Move the calls in flight until this one is done. Blocks, at most so long."""
        until = time.monotonic() + seconds
        while not call.done and (left := until - time.monotonic()) > 0:
            call.wait_step(left)
            self.progress()

    def _lose(self, client: kvcl.StoreClient) -> None:
        if self.client is client:
            self._log.warning("KVCL: the connection to the store is lost: serving without reuse of KV cache from it "
                              "until it is back")
            self._retired.append(client)
            self._at += 1  # another rank of the store may answer
            self.client = None
            self._wake.set()

    def close(self) -> None:
        """End the connection. Blocks, at most a few seconds."""
        self._closing = True
        self._wake.set()
        self._thread.join(2 * self._options["retry"] + 5)
        client, self.client = self.client, None
        if client is not None:
            client.close()
            self._retired.append(client)
        while self._retired:
            self._retired = [one for one in self._retired if one.progress()]
        if self._context is not None and not self._thread.is_alive():
            try:
                self._context.close()
            except kvcl.Busy:
                pass  # requests that do not end: the process ends before
            self._context = None

    # ---- the thread ----

    def _run(self) -> None:
        while not self._closing:
            if self.client is None:
                try:
                    self._connect()
                except Exception as error:  # noqa: B902: the engine goes on whatever it is
                    self.tried.set()
                    self._tell(f"{type(error).__name__}: {error}")
                    self._wake.wait(self._options["retry"])
                    self._wake.clear()
                    continue
            self._wake.wait()
            self._wake.clear()

    def _tell(self, why: str) -> None:
        if self._told != why:
            self._told = why
            self._log.warning("KVCL: no store yet (%s): serving without reuse of KV cache from it, trying again every "
                              "%g s", why, self._options["retry"])

    def _connect(self) -> None:
        if self._context is None:
            context = kvcl.Context(boot="self", secret_file=self._options["secret_file"] or None,
                                   path=self._options["path"] or None)
            try:
                if self._prepare is not None:
                    self._prepare(context)
            except BaseException:
                context.close()
                raise
            self._context = context
            self.tried.set()
        if self._options["store"] == "none":
            return
        client, file = self._reach(self._context)
        self.connections += 1
        self._told = ""
        self._log.info("KVCL: connected to the store of %s", file)
        differs = explain(self._text, client.others)
        if differs is not None:
            self._log.warning("KVCL: %s: %s", SAYS, differs)
        self.client = client

    def _reach(self, context: kvcl.Context) -> Tuple[kvcl.StoreClient, str]:
        """A client of the first rank that answers, and its file. Raises what the last failed with."""
        alone = len(self._files) == 1
        for attempt in range(len(self._files)):
            file = self._files[(self._at + attempt) % len(self._files)]
            client = kvcl.StoreClient(context, block_bytes=self._block_bytes, text=self._text,
                                      timeout=self._options["timeout"], layers=self._layers)
            try:
                client.connect(file, min(ALONE if alone else EACH, self._options["timeout"]))
                self._at += attempt
                return client, file
            except Exception:  # noqa: B902: also of a file that holds something else
                if attempt == len(self._files) - 1:
                    raise
        raise AssertionError("there is no file")
