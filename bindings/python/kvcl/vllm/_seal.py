"""The addresses by which engines reach each other, with a MAC under the job's secret. They travel in
kv_transfer_params, through routers and perhaps users, and an engine connects to none that no engine of its job has
made: the scheduler computes such a prompt at once, and no worker tries to connect.
"""

import hmac
import os
from typing import Optional

SECRET_MAX = 65536  # bytes
MAC = 32            # letters


class Seal:
    """path: of the job's secret; "": KVCL_SECRET_FILE. It is read when it is first needed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._key = b""
        self.refused = 0  # addresses

    def put(self, address: str) -> str:
        """The address as other engines take it. OSError: there is no secret."""
        return f"{address}#{self._mac(address)}"

    def take(self, text: str) -> Optional[str]:
        """The address in it; None: no engine with this secret has made it."""
        address, _, mac = text.rpartition("#")
        try:
            if hmac.compare_digest(mac.encode(), self._mac(address).encode()):
                return address
        except (OSError, UnicodeEncodeError):
            pass  # no secret, or no text
        self.refused += 1
        return None

    def _mac(self, address: str) -> str:
        if not self._key:
            with open(self._path or os.environ.get("KVCL_SECRET_FILE", ""), "rb") as file:
                self._key = hmac.digest(file.read(SECRET_MAX), b"kvcl.vllm address", "sha256")
        return hmac.digest(self._key, address.encode(), "sha256").hex()[:MAC]
