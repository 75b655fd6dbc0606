"""Models that share a frozen base: all rows' samples go through it as one batch.

Most of such a model does the same to every row, so it is not stacked at all: its own forward is called once with the
samples of all rows one after another. Only where weights train, in an adapter or a head, the batch is taken apart into
rows and each has its own product. Nothing has to be traced, and no gradient of a frozen weight is ever computed.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from walktalk.learning.kernels import attend_in_groups, can_attend_in_groups
from walktalk.learning.models import LoraLinear
from walktalk.learning.samples import seeded
from walktalk.learning.stacked.model import PassedModel
from walktalk.learning.stacked.products import batched_adapter
from walktalk.learning.stacked.tensors import NotStackable, Pass, RowLayout, StackedTensor
from walktalk.learning.stacked.traced import layer_of
from walktalk.learning.task import Loss, is_partly_frozen, sharing_copy, still_parts

MANY_PARAMETERS = 2**24  # from which on few samples fill a device


class SharedBaseModel(PassedModel):
    """Models with a frozen base, which many rows of what trains share."""

    def __init__(self, module: nn.Module, loss: Loss, with_buffers: bool = True) -> None:
        super().__init__(module, loss, with_buffers)
        if not is_partly_frozen(module):
            raise NotStackable("nothing is frozen")
        self.now = Now()
        copied = sharing_copy(module)
        self.still = list(still_parts(copied).values())  # found before the layers that train are replaced
        self.worker = with_rows(copied, self.layout, self.now).eval()
        self.lock = threading.Lock()
        self.adapters = [part for part in self.worker.modules() if isinstance(part, RowAdapter)]
        self.drops = drops_something(module)
        self.base: torch.dtype | None = None  # of the frozen weights, where it is another than they came in
        self.compiled = False
        self.is_large = sum(p.numel() for p in module.parameters()) > MANY_PARAMETERS
        if self.is_large:
            self.samples_at_once = 64

    def passed(self, inputs: Tensor, run: Pass) -> Tensor:
        rows = len(inputs)
        with self.lock:  # of threads: the layers look up whose turn it is
            if self.worker.training != run.training:
                self.worker.train(run.training)
                for part in self.still:
                    part.training = False
            self.now.begin(rows, run)
            for adapter in self.adapters:
                adapter.look_at(run.tensors, rows)
            with self.around(run):
                outputs: Tensor = self.worker(inputs.flatten(0, 1))
            self.now.run = None
        apart: Tensor = outputs.unflatten(0, (rows, -1))
        return apart

    @contextmanager
    def around(self, run: Pass) -> Iterator[None]:
        """The context of a pass: an evaluation, whose batches have any length, goes without compiled blocks."""
        with ExitStack() as stack:
            if self.drops and run.training:
                stack.enter_context(RowDropout(self.now))
            if self.compiled and not run.training:
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            yield

    def hold_base(self, kind: torch.dtype | None) -> None:
        """Holds the frozen weights in this precision from now on; None: as they came."""
        mine = sharing_copy(self.module)
        originals = dict(mine.named_parameters(remove_duplicate=False))
        made: dict[int, nn.Parameter] = {}
        for place, part in self.worker.named_modules():
            for name, parameter in part._parameters.items():
                source = originals.get(f"{place}.{name}" if place else name)
                if parameter is None or source is None or not source.is_floating_point():
                    continue
                if id(source) not in made:
                    held = source if kind is None else nn.Parameter(source.detach().to(kind), requires_grad=False)
                    made[id(source)] = held
                part._parameters[name] = made[id(source)]
        self.base = kind

    def attend(self, ours: bool) -> bool:
        """Attends by kernels of our own, or by torch's; says whether the base has attention that ours fit."""
        if ours:
            return attend_by_ours(self.worker)
        attend_by_theirs(self.worker)
        return False

    def compile_blocks(self) -> bool:
        """Compiles the blocks that the base repeats, each once for all of them; whether there are any."""
        blocks = [block for block in repeated_blocks(self.worker) if has_adapters(block)]
        if self.drops or not blocks:
            return False
        for block in blocks:
            block.compile()
        self.compiled = True
        return True

    def undo_compilation(self) -> None:
        """Goes back to the plain base."""
        for part in self.worker.modules():
            part._compiled_call_impl = None
        self.compiled = False

    def held_once(self) -> list[nn.Parameter]:
        """Frozen parameters, and all of the worker's: what its adapters have belongs to the rows."""
        return [*super().held_once(), *self.worker.parameters()]

    def outputs_in_training(self, row: Tensor, inputs: Tensor) -> Tensor:
        """What a single model puts out in a training, by way of the shared base."""
        tensors = self.layout.views(row[None].requires_grad_(), [*self.layout.parameters, *self.layout.buffers])
        run = Pass(tensors, True, torch.zeros(1, dtype=torch.int64, device=row.device))
        return self.passed(inputs[None], run)[0]

    def finds_draws(self, rows: Tensor, inputs: Tensor) -> bool:
        """Whether a pass in training depends on torch's own random numbers."""
        run = Pass(self.layout.views(rows, [*self.layout.parameters, *self.layout.buffers]), True, with_buffers=False)
        run.keys = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
        found = []
        for seed in range(3):
            with torch.no_grad(), seeded(seed, rows.device):
                run.draws = 0
                found.append(self.passed(inputs, run))
        return any(not torch.equal(one, found[0]) for one in found[1:])


class Now:
    """The pass that is under way, for layers that know rows."""

    def __init__(self) -> None:
        self.rows = 0
        self.run: Pass | None = None

    def begin(self, rows: int, run: Pass) -> None:
        self.rows, self.run = rows, run


class RowLayer(nn.Module):
    """A layer that trains, in a batch of many rows."""

    def __init__(self, part: nn.Module, names: dict[str, str], now: Now) -> None:
        super().__init__()
        found = layer_of(part)
        if found is None:
            raise NotStackable(f"layer {type(part).__name__}")
        self.layer: Callable[..., StackedTensor] = found
        self.inside = (part,)  # in a tuple: it is no part of this one
        self.names, self.now = names, now

    def forward(self, x: Tensor) -> Tensor:
        run, rows = self.now.run, self.now.rows
        if run is None:
            raise NotStackable("a layer outside of a pass")
        out = self.layer(StackedTensor(x.unflatten(0, (rows, -1)), rows), self.inside[0], self.get, run)
        return out.stacked().flatten(0, 1)

    def get(self, name: str) -> Tensor:
        """A tensor of the layer, [W, *shape]: the rows' own, or the frozen one for all."""
        assert self.now.run is not None
        found = self.now.run.tensors.get(self.names.get(name, ""))
        if found is not None:
            return found
        own: Tensor = getattr(self.inside[0], name).detach()
        return own.expand(self.now.rows, *own.shape)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:  # who asks for the layer's weight, or how many features enter it
            return getattr(self.__dict__["inside"][0], name)


class RowAdapter(nn.Module):
    """A frozen linear layer and every row's own low-rank adapter."""

    def __init__(self, part: LoraLinear, a: str, b: str) -> None:
        super().__init__()
        self.base_layer, self.lora_dropout, self.scaling = part.base_layer, part.lora_dropout, part.scaling
        self.names = (a, b)
        self.frozen = (part.lora_A.weight.detach(), part.lora_B.weight.detach())
        self.rows_a, self.rows_b = (factor[None] for factor in self.frozen)

    def look_at(self, tensors: dict[str, Tensor], rows: int) -> None:
        """The rows' own factors for the pass that begins. As attributes: a compiler must not see their names."""
        a, b = (tensors.get(name) for name in self.names)
        self.rows_a = self.frozen[0].expand(rows, -1, -1) if a is None else a
        self.rows_b = self.frozen[1].expand(rows, -1, -1) if b is None else b

    def forward(self, x: Tensor) -> Tensor:
        return batched_adapter(self.base_layer(x), self.lora_dropout(x), self.rows_a, self.rows_b, self.scaling)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("base_layer"), name)


def with_rows(module: nn.Module, layout: RowLayout, now: Now) -> nn.Module:
    """The module with layers in it that know rows, wherever something trains; `NotStackable` where none is known."""
    entries = {entry.name for entry in (*layout.parameters, *layout.buffers)}
    names = {id(tensor): name for name, tensor in module.named_parameters() if name in entries}
    names |= {id(tensor): name for name, tensor in module.named_buffers() if name in entries}
    done: list[str] = []
    for name, part in list(module.named_modules()):
        if any(name.startswith(f"{inside}.") for inside in done):
            continue
        if type(part) is LoraLinear and name:
            a, b = (names.get(id(factor.weight), "") for factor in (part.lora_A, part.lora_B))
            put(module, name, RowAdapter(part, a, b))
            done.append(name)
            continue
        own = dict(part.named_parameters(recurse=False)) | dict(part.named_buffers(recurse=False))
        trained = {key: names[id(tensor)] for key, tensor in own.items() if id(tensor) in names}
        if not trained:
            continue
        if not name or any(True for _ in part.children()):
            raise NotStackable(f"weights of {name or 'the model'} itself")
        put(module, name, RowLayer(part, trained, now))
    return module


def put(module: nn.Module, name: str, part: nn.Module) -> None:
    place, _, last = name.rpartition(".")
    module.get_submodule(place)._modules[last] = part


def repeated_blocks(module: nn.Module) -> list[nn.Module]:
    """The entries of lists of layers that are all of one kind, as a transformer's are."""
    found = []
    for part in module.modules():
        entries = list(part.children()) if isinstance(part, (nn.ModuleList, nn.Sequential)) else []
        if len(entries) > 1 and len({type(entry) for entry in entries}) == 1:
            found += entries
    return found


def has_adapters(block: nn.Module) -> bool:
    """Whether rows come into it by adapters alone, so that it can be compiled."""
    kinds = {type(part) for part in block.modules()}
    return RowAdapter in kinds and RowLayer not in kinds


def drops_something(module: nn.Module) -> bool:
    """Whether a pass in training may drop something: a dropout layer, or a share that models of others keep by name."""
    shares = ((name, value) for part in module.modules() for name, value in vars(part).items())
    layers = (part for part in module.modules() if isinstance(part, nn.modules.dropout._DropoutNd))
    named = any(isinstance(value, float) and value > 0 and "dropout" in name for name, value in shares)
    return named or any(layer.p > 0 for layer in layers)


class RowDropout(TorchFunctionMode):
    """A context in which what is dropped follows from the keys of the rows, wherever a model calls torch's dropout."""

    def __init__(self, now: Now) -> None:
        super().__init__()
        self.now = now

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.dropout:
            return self.dropped(*args, **kwargs)
        if func is functional.scaled_dot_product_attention and (kwargs.get("dropout_p") or (args[4:5] or (0,))[0]):
            raise NotStackable("dropout inside of attention")
        return func(*args, **kwargs)

    def dropped(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0.0:
            return x
        assert self.now.run is not None
        return self.now.run.dropped(x.unflatten(0, (self.now.rows, -1)), p).flatten(0, 1)


class NoDropout(TorchFunctionMode):
    """A context in which torch's dropout lets everything through."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is functional.dropout:
            return args[0] if args else kwargs["input"]
        if func is functional.scaled_dot_product_attention:
            kwargs["dropout_p"], args = 0.0, (*args[:4], *([0.0, *args[5:]] if len(args) > 4 else []))
            if len(args) > 4:
                del kwargs["dropout_p"]
        return func(*args, **kwargs)


# Attention of our own in models of `transformers`: they look up by a name in their configuration who does it.

NAME = "walktalk_short_texts"
THEIRS = "sdpa"
WISHES = ("position_bias", "cache", "s_aux", "sliding_window", "softcap", "output_attentions")  # not met by our kernel


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **more: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention as transformers calls it, [N, T, heads, D]; by torch's own wherever ours does not fit."""
    wished = any(more.get(name) is not None and more.get(name) is not False for name in WISHES)
    if attention_mask is not None or dropout or wished or not can_attend_in_groups(query, key, value):
        given = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal}
        theirs: tuple[Tensor, None] = _functions()[THEIRS](module, query, key, value, attention_mask, **given, **more)
        return theirs
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attend_in_groups(query, key, value, scale, causal), None


def attend_by_ours(worker: nn.Module) -> bool:
    """Lets attention in this model be ours; says whether it has any that can be."""
    functions, made = _functions(), dict[int, Any]()
    for part in worker.modules():
        config = vars(part).get("config")
        if functions is None or not hasattr(part, "is_causal") or not _is(config, THEIRS):
            continue
        if id(config) not in made:  # theirs stays what it is: masks are made by it
            made[id(config)] = copy.copy(config)
            made[id(config)]._attn_implementation = NAME
        part.config = made[id(config)]
    if made:
        functions.register(NAME, attend)
    return bool(made)


def attend_by_theirs(worker: nn.Module) -> None:
    """Lets attention in this model be torch's own again."""
    for part in worker.modules():
        config: Any = vars(part).get("config")
        if _is(config, NAME):
            config._attn_implementation = THEIRS


def _is(config: Any, name: str) -> bool:
    return getattr(config, "_attn_implementation", None) == name


def _functions() -> Any:
    """The attention functions that transformers knows; None where it is not in use, or too old to have them."""
    return getattr(sys.modules.get("transformers.modeling_utils"), "ALL_ATTENTION_FUNCTIONS", None)
