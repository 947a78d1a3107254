"""Steps of experts: dispatch and combine over the ranks of a communicator (kvcl_ep_step.h)."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import _kvcl
from ._comm import Comm
from ._ep_arrays import HOLES, Model, flat, params
from ._errors import KvclError, Status
from ._reduce import DTYPES

ID_NONE = -1  # the token chose fewer experts
ID_LOST = -2  # the chosen expert is in no slot: its weight counts as lost

_NAMES = {"bfloat16": "bf16", "float32": "f32", "bf16": "bf16", "f32": "f32"}
_FORMATS: Dict[str, Tuple[Any, int]] = {"bf16": ("H", 2), "f32": ("f", 4)}
_ELEMENTS = {"bf16": ("bfloat16", "uint16", "int16"), "f32": ("float32",)}
_LETTERS = {"q": "int64", "l": "int64", "f": "float32", "H": "uint16", "h": "int16", "e": "float16", "d": "float64"}


class Batch(NamedTuple):
    """What a dispatch brought. Valid until the next dispatch.

    x, y: memoryviews [local slots][rows][hidden], of floats, or of 16-bit integers that are bfloat16: the tokens for
    each local slot, counts[slot] from its first row on, and where the experts may write their outputs, row for row.
    ranges[slot][rank]: first row << 32 | rows, of each rank's tokens.
    """

    step: int
    x: memoryview
    y: memoryview
    counts: memoryview
    ranges: memoryview


class Result(NamedTuple):
    """What a combine gave. out: [tokens][hidden]; lost: [tokens], the weight that each token lacks."""

    out: Any
    lost: memoryview
    tokens_lost: int  # that lack an expert
    tokens_all: int   # that lack all of them: their output is 0
    active: int       # ranks


def _shape(array: Any, what: str) -> Tuple[int, int]:
    """Of a two-dimensional array: NumPy's, torch's, a memoryview."""
    shape = getattr(array, "shape", None)
    if shape is None or len(shape) != 2:
        raise TypeError(f"{what}: an array with two dimensions is needed (NumPy, torch, a memoryview with a shape)")
    return int(shape[0]), int(shape[1])


def _element(array: Any) -> str:
    """The name of its type: "int64"."""
    letter = array.format if isinstance(array, memoryview) else getattr(array, "typecode", None)
    if letter is not None:
        return _LETTERS.get(letter, str(letter))
    return str(getattr(array, "dtype", "")).rsplit(".", 1)[-1]


def _need(array: Any, what: str, element: str) -> Any:
    if _element(array) != element:
        raise TypeError(f"{what}: elements are {element}, not {_element(array) or 'unknown'}")
    return array


def _type_of(array: Any, what: str, *types: str) -> str:
    """Which of these types its elements have. 16-bit integers are bfloat16; float16 is nothing."""
    element = _element(array)
    for name in types:
        if element in _ELEMENTS[name]:
            return name
    needed = " or ".join({"bf16": "bfloat16 (also uint16 or int16 with its bits)", "f32": "float32"}[t] for t in types)
    raise TypeError(f"{what}: elements must be {needed}, not {element or 'unknown'}")


class Experts(_kvcl.Experts):
    """Steps of one mixture-of-experts model, from open(). One call at a time; calls release the GIL.

    >>> import array, kvcl
    >>> from kvcl import ep
    >>> with kvcl.Context(boot="self") as ctx:
    ...     with ep.open(ctx.world, slots=2, max_tokens=4, top_k=2, hidden=3, dtype="float32") as experts:
    ...         x = memoryview(array.array("f", [1, 2, 3])).cast("B").cast("f", (1, 3))
    ...         ids = memoryview(array.array("q", [1, 0])).cast("B").cast("q", (1, 2))
    ...         batch = experts.dispatch(x, ids)
    ...         for slot in range(2):  # the experts: slot 0 multiplies by 10, slot 1 by 100
    ...             for i in range(3):
    ...                 batch.y[slot, 0, i] = batch.x[slot, 0, i] * (10, 100)[slot]
    ...         weights = memoryview(array.array("f", [0.5, 0.25])).cast("B").cast("f", (1, 2))
    ...         out = memoryview(bytearray(12)).cast("f", (1, 3))
    ...         experts.combine(weights, out).tokens_lost, out.tolist()
    (0, [[52.5, 105.0, 157.5]])
    """

    _ranks: int
    _hidden: int
    _dtype: str
    _tokens: int
    _top_k: int
    _batch: Optional[Batch] = None

    def dispatch(self, x: Any, ids: Any) -> Batch:
        """Begin a step: give each token to the slots that it chose. Every active rank calls it, with 0 tokens too.

        x: [tokens][hidden] of the handle's type (bfloat16: a torch tensor, or 16-bit integers). ids: [tokens][top_k],
        int64: slots, ID_NONE or ID_LOST. OutOfRange names the token and the place; nothing was sent then.
        """
        tokens, hidden = _shape(x, "x")
        none = tokens == 0 and tuple(getattr(ids, "shape", ())) == (0,)  # memoryviews of no rows have one dimension
        rows, top_k = (0, 1) if none else _shape(_need(ids, "ids", "int64"), "ids")
        if rows != tokens or hidden != self._hidden:
            raise ValueError(f"x has {tokens} tokens of {hidden} elements, ids {rows}; hidden is {self._hidden}")
        _type_of(x, "x", self._dtype)
        letter, size = _FORMATS[self._dtype]
        before, self._batch = self._batch, None  # so that no combine takes the counts of another step
        try:
            step, experts, room, *parts, counts, ranges = self._dispatch(x, ids, tokens, top_k, self._ranks,
                                                                         self._hidden * size)
        except (KvclError, BufferError, TypeError, ValueError):  # refused: the step before it is as it was
            self._batch = before
            raise
        self._tokens, self._top_k = tokens, top_k
        views = [part.cast(letter, (experts, room, self._hidden)) for part in parts]
        self._batch = Batch(step, views[0], views[1], memoryview(counts).cast("I"),
                            memoryview(ranges).cast("q", (experts, self._ranks)))
        return self._batch

    def combine(self, weights: Any, out: Any, y: Any = None) -> Result:
        """End the step: out[token] = the sum of weight * output over the chosen experts, in their order, in float32.

        weights: [tokens][top_k], float32. out: [tokens][hidden], written. y: the outputs in an array of the batch's
        shape; None: they are in batch.y, which saves a copy. Nothing is renormalised: see renormalise().
        """
        batch = self._batch
        if batch is None:
            raise ValueError("no dispatch before it")
        size = _FORMATS[self._dtype][1]
        lost: Any = memoryview(bytearray(4 * max(self._tokens, 1)))[:4 * self._tokens].cast("B").cast("f")
        _need(weights, "weights", "float32")
        _type_of(out, "out", self._dtype)
        if y is not None:
            _type_of(y, "y", self._dtype)
        _, tokens_lost, tokens_all, active = self._combine(y, batch.x.nbytes, weights, out, lost, self._tokens,
                                                           self._top_k, self._hidden * size)
        return Result(out, lost, tokens_lost, tokens_all, active)

    @property
    def active(self) -> List[bool]:
        """The ranks that take part, as this rank knows it."""
        return list(self._state()[3])

    @property
    def why(self) -> List[Status]:
        """Why ranks are skipped, Status.OK: they are not: dead, late (ERR_TIMED_OUT), it skips this one (ERR_STALE)."""
        return [Status(status) for status in self._state()[4]]

    @property
    def number(self) -> int:
        """Of the last activation."""
        return int(self._state()[1])

    def mask(self) -> memoryview:
        """The active mask where it lies, for a kernel: 32-bit integers, 1: takes part."""
        return self._mask().cast("i")

    def changes(self) -> int:
        """How often mask and map have changed: while it is unchanged, so are active, number and map."""
        return int(self._state()[0])

    def activate(self, number: int, model: Model, placement: Any = None, holes: bool = False) -> None:
        """Replace mask (model.active) and map together, on all active ranks with the same arguments, between two steps.

        number: more than the last one. placement: [layers][slots]; None: the map stays. Steps are counted anew.
        """
        array, layers = (None, 1) if placement is None else flat("placement", placement, "i", model.slots)
        self._activate(number, params(model, layers, HOLES if holes else 0), array)

    def choose(self, layer: int, experts: Any) -> memoryview:
        """The slots of chosen experts, [tokens][top_k] int64, for dispatch(): copies on active ranks in turn. Without
        tokens it has one dimension, which dispatch() takes."""
        tokens, top_k = _shape(_need(experts, "experts", "int64"), "experts")
        ids = memoryview(bytearray(8 * max(tokens * top_k, 1)))[:8 * tokens * top_k]
        self._choose(layer, experts, tokens, top_k, ids)
        return ids.cast("B").cast("q", (tokens, top_k)) if tokens * top_k else ids.cast("q")

    def close(self) -> None:
        """Local. Ranks that go on without this one skip it at once. BufferError: arrays over a batch still exist."""
        if self._batch is not None:
            for view in (self._batch.x, self._batch.y):
                view.release()
            self._batch = None
        super().close()

    def __enter__(self) -> "Experts":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


def open(comm: Comm, *, slots: int, max_tokens: int, top_k: int, hidden: int, dtype: Any = "bfloat16",
         timeout: Optional[float] = None, first_timeout: Optional[float] = None, first_steps: int = 1) -> Experts:
    """Begin steps of a model. Collective, with the same arguments on all ranks.

    slots: on all ranks. max_tokens: of a rank, in a dispatch. dtype: "bfloat16" or "float32", or a torch or NumPy type
    of that name. timeout: after which a silent rank is skipped, in each dispatch and each combine; first_timeout: of
    open() and of the first steps, in which ranks warm up. See Experts for an example.
    """
    name = _NAMES.get(getattr(dtype, "__name__", str(dtype)).rsplit(".", 1)[-1])
    if name is None:
        raise ValueError(f"dtype {dtype!r}: bfloat16 and float32 are possible")
    experts = Experts._open(comm, slots, max_tokens, top_k, hidden, DTYPES[name], first_steps, timeout, first_timeout)
    experts._ranks, experts._hidden, experts._dtype = comm.size, hidden, name
    return experts


def renormalise(out: Any, ids: Any, weights: Any, lost: Any) -> List[int]:
    """Scale the outputs of tokens that lack an expert by all weights / remaining weights, in place. The tokens whose
    remaining experts weigh nothing (0/0), which are left as they are.

    >>> import array
    >>> from kvcl import ep
    >>> def rows(letter, *numbers):
    ...     return memoryview(array.array(letter, numbers)).cast("B").cast(letter, (len(numbers) // 2, 2))
    >>> out = rows("f", 1, 2, 0, 0)
    >>> ep.renormalise(out, rows("q", 3, 4, 5, -2), rows("f", .5, .5, 0, 1), array.array("f", [.5, 1]))
    [1]
    >>> out.tolist()
    [[2.0, 4.0], [0.0, 0.0]]
    """
    tokens, hidden = _shape(out, "out")
    _, top_k = _shape(_need(ids, "ids", "int64"), "ids")
    _need(weights, "weights", "float32")
    dtype = _type_of(out, "out", "f32", "bf16")
    hopeless = bytearray(max(tokens, 1))
    _kvcl.ep_renormalise(out, DTYPES[dtype], tokens, hidden, ids, weights, top_k, lost,
                         memoryview(hopeless)[:tokens])
    return [token for token in range(tokens) if hopeless[token]]
