"""A prompt's blocks from the engine that computed them (prefill) to the one that generates (decode), without the store:
what travels in kv_transfer_params, and the leases by which a reader knows that it has read the right bytes. Pure.

A router either gives the second engine the parameters that the first one answers, or names the request to both, ahead
of the answer: the second one then finds the blocks by that name on the first one's board (_board.py).

The prefill engine keeps the blocks, and gives them a lease: a slot in a table that decode engines may read, and in the
slot the lease's name. It clears the slot before the blocks are given to others. A reader reads the blocks, then the
slot: if the slot has the name, the blocks were not changed meanwhile. The name is made from the fields of the model,
the handover's id, the blocks and the prompt's tokens, and at each rank of several from its number. So parameters that
name other blocks or other ranks, or the same ranks in another order, or that come with another prompt, give another
name: the read fails and the prompt is computed.
"""

import dataclasses
import json
from typing import Any, Dict, List, Optional, Sequence, Tuple

import kvcl

SLOTS = 4096
BLOCKS_MAX = 1 << 20
PEERS_MAX = 1024
NAME_MAX = 256  # characters of a router's name of a request


@dataclasses.dataclass(frozen=True)
class Ahead:
    """A prompt that is read while it is computed: its name, and what decides which of its blocks are there."""

    handover: str
    tokens: int
    size: int  # tokens of a block


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a prompt's blocks are: the address of each tensor-parallel rank, and what to read there. ahead: the blocks
    are on the ranks' boards, and have no slot."""

    peers: Tuple[str, ...]
    blocks: Tuple[int, ...]
    slot: int
    name: bytes = b""  # of the lease
    ahead: Optional[Ahead] = None

    def name_at(self, peer: int) -> bytes:
        """The lease's name at one of the ranks."""
        return rank_name(self.name, peer, len(self.peers))


@dataclasses.dataclass(frozen=True)
class Lease:
    """Blocks of a request that readers may read."""

    request: str
    slot: int
    name: bytes


def lease_name(base: bytes, handover: str, tokens: int, blocks: Sequence[int], hashes: Sequence[bytes], block_size: int,
               tail: bytes) -> bytes:
    """base: the root of the model's keys. hashes: vLLM's, of full blocks. tail: what is in the partial last block."""
    last = hashes[tokens // block_size - 1] if tokens >= block_size else b""
    text = json.dumps([handover, tokens, list(blocks), last.hex(), tail.hex()])
    return kvcl.key_from_bytes(text.encode(), base)


def rank_name(name: bytes, rank: int, ranks: int) -> bytes:
    """The name that a lease has at one rank of an engine of so many: each has other heads of the blocks."""
    return name if ranks == 1 else kvcl.key_from_bytes(b"rank %d of %d" % (rank, ranks), name)


def params(source: Source) -> Dict[str, Any]:
    """What is added to kv_transfer_params."""
    return {"kvcl_peers": list(source.peers), "kvcl_blocks": list(source.blocks), "kvcl_slot": source.slot}


def named(value: Any) -> bool:
    """Whether it is a router's name of a request: text that has bytes. Half of a pair of surrogates, which JSON can
    name, has none."""
    return (isinstance(value, str) and 0 < len(value) <= NAME_MAX
            and not any("\ud800" <= one <= "\udfff" for one in value))


def _addresses(peers: Any, seal: Any) -> Optional[Tuple[str, ...]]:
    """None: they have another form, or no engine of the job has made one of them (_seal.py)."""
    if not (isinstance(peers, list) and 0 < len(peers) <= PEERS_MAX
            and all(isinstance(one, str) and 0 < len(one) < 65536 for one in peers)):
        return None
    out = []
    for one in peers:
        address = one if seal is None else seal.take(one)
        if address is None:
            return None
        out.append(address)
    return tuple(out)


def _number(value: Any, end: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end


def read(given: Dict[str, Any], blocks: int, seal: Any = None) -> Optional[Source]:
    """Of kv_transfer_params; None if they name no source of so many blocks, or have another form."""
    slot: Any = given.get("kvcl_slot")
    ids = given.get("kvcl_blocks")
    if not (isinstance(ids, list) and len(ids) == blocks and _number(slot, SLOTS)):
        return None
    if not all(_number(one, 1 << 31) for one in ids):
        return None
    peers = _addresses(given.get("kvcl_peers"), seal)
    return None if peers is None else Source(peers, tuple(ids), slot)


def read_ahead(given: Dict[str, Any], tokens: int, size: int, seal: Any = None) -> Optional[Source]:
    """Of kv_transfer_params by which a router sends a request ahead of the prefill engine's answer; None: of others."""
    if given.get("kvcl_ahead") is not True or "kvcl_blocks" in given or not named(given.get("kvcl_id")):
        return None
    peers = _addresses(given.get("kvcl_peers"), seal)
    return None if peers is None else Source(peers, (), -1, ahead=Ahead(given["kvcl_id"], tokens, size))


def ahead_name(base: bytes, handover: str, tokens: int, hashes: Sequence[bytes], block_size: int, tail: bytes) -> bytes:
    """As lease_name(), before the blocks are known."""
    return lease_name(base, f"ahead {handover}", tokens, (), hashes, block_size, tail)


@dataclasses.dataclass(frozen=True)
class Part:
    """What one rank reads from one rank of the other engine: for each block, these parts into those. No parts: that
    rank is only told that it will not be read."""

    peer: int
    theirs: Tuple[int, ...]
    ours: Tuple[int, ...]
    their_parts: int    # of a block, at that rank
    readers: int        # how many ranks read from that one
    reader: int = 0     # this rank's number among them


def _held(heads: int, tp: int, rank: int) -> List[int]:
    """The heads that a rank has."""
    if heads >= tp:
        each = heads // tp
        return list(range(rank * each, (rank + 1) * each))
    return [rank // (tp // heads)]


def _share(heads: int, tp: int, rank: int, theirs: int) -> Dict[int, List[Tuple[int, int]]]:
    """The rank that each head of this one is read from: {rank: [(its part, this rank's part)]}."""
    out: Dict[int, List[Tuple[int, int]]] = {}
    for ours, head in enumerate(_held(heads, tp, rank)):
        for peer in range(theirs):
            held = _held(heads, theirs, peer)
            if head in held and (heads >= theirs or peer % (theirs // heads) == rank % (theirs // heads)):
                out.setdefault(peer, []).append((held.index(head), ours))
                break
    return out


def parts(heads: int, tp: int, rank: int, theirs: int) -> List[Part]:
    """What a rank of tp reads from the ranks of an engine of size theirs. heads: of the model, of which each size
    divides the other. ValueError: no engine of the model has so many ranks."""
    if heads % theirs != 0 and theirs % heads != 0:
        raise ValueError(f"a prefill engine of {theirs} ranks: the model's {heads} KV heads are not divided so")
    shares = [_share(heads, tp, one, theirs) for one in range(tp)]
    out = []
    for peer, pairs in shares[rank].items():
        readers = [one for one, share in enumerate(shares) if peer in share]
        out.append(Part(peer, tuple(a for a, _ in pairs), tuple(b for _, b in pairs), len(_held(heads, theirs, peer)),
                        len(readers), readers.index(rank)))
    if rank == 0:
        used = {peer for share in shares for peer in share}
        out += [Part(peer, (), (), 0, 1) for peer in range(theirs) if peer not in used]
    return out
