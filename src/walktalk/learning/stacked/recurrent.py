"""Recurrent layers of many models at once: the product with the inputs for all times together, then step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from walktalk.learning.stacked.laid import Laid, NotStackable, Pass
from walktalk.learning.stacked.over_time import gru, rnn
from walktalk.learning.stacked.products import batched_linear

Get = Callable[[str], Tensor]


def recurrent(args: list[Any], kwargs: dict[str, Any], module: Any, get: Get, run: Pass) -> Any:
    """torch.nn.RNN, LSTM and GRU: (outputs, last state), as torch gives them."""
    if len(args) > 1 or kwargs or module.proj_size:
        raise NotStackable("this kind of recurrent layer")
    x: Laid = args[0]
    if x.stacked().dim() != 4:
        raise NotStackable("a recurrent layer without samples")
    step_by_step = x.tensor.is_cuda or not isinstance(module, nn.LSTM)
    found = (in_steps if step_by_step else one_by_one)(x, module, get, run)
    outputs, *states = (Laid(tensor, x.rows) for tensor in found)
    return outputs, tuple(states) if isinstance(module, nn.LSTM) else states[0]


def one_by_one(x: Laid, module: nn.RNNBase, get: Get, run: Pass) -> list[Tensor]:
    """Row after row through torch's own LSTM: on a CPU oneDNN's is faster than products over all rows."""
    if module.dropout:
        raise NotStackable("a recurrent layer with dropout")
    inputs, names = x.stacked(), [name for names in module._all_weights for name in names]
    flat = []
    count = module.num_layers * (2 if module.bidirectional else 1)
    samples = inputs.shape[1] if module.batch_first else inputs.shape[2]
    start = inputs.new_zeros(count, samples, module.hidden_size)
    weights = [(get(name).squeeze(0),) if x.rows == 1 else get(name).unbind(0) for name in names]
    for r in range(x.rows):
        flat.append(
            torch._VF.lstm(
                inputs.squeeze(0) if x.rows == 1 else inputs[r],
                (start, start),
                [weight[r] for weight in weights],
                module.bias,
                module.num_layers,
                0.0,
                run.training,
                module.bidirectional,
                module.batch_first,
            )
        )
    return [parts[0].unsqueeze(0) if x.rows == 1 else torch.stack(parts) for parts in zip(*flat, strict=True)]


def in_steps(x: Laid, module: nn.RNNBase, get: Get, run: Pass) -> list[Tensor]:
    inputs = x.stacked() if module.batch_first else x.stacked().transpose(1, 2)  # [W, B, T, features]
    lasts: list[tuple[Tensor, ...]] = []
    for layer in range(module.num_layers):
        if layer > 0:
            inputs = run.dropped(inputs, module.dropout)
        ways = []
        for suffix in ("", "_reverse") if module.bidirectional else ("",):
            outputs, last = one_way(inputs, module, get, f"l{layer}{suffix}", bool(suffix))
            ways.append(outputs)
            lasts.append(last)
        inputs = torch.cat(ways, dim=-1) if len(ways) > 1 else ways[0]
    outputs = inputs if module.batch_first else inputs.transpose(1, 2)
    return [outputs, *(torch.stack(parts, dim=1) for parts in zip(*lasts, strict=True))]


def one_way(
    inputs: Tensor, module: nn.RNNBase, get: Get, name: str, backwards: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One layer in one direction over inputs [W, B, T, features]: its outputs, and its last state."""
    biases = (get(f"bias_ih_{name}"), get(f"bias_hh_{name}")) if module.bias else (None, None)
    weight = get(f"weight_hh_{name}")
    if is_by_hand(module, inputs):
        both = None if biases[0] is None or biases[1] is None else (biases[0], biases[1])
        all_given = inputs, (get(f"weight_ih_{name}"), weight), both, backwards
        states = gru(*all_given) if isinstance(module, nn.GRU) else rnn(*all_given, relu=module.nonlinearity == "relu")
        return states, (states[:, :, 0 if backwards else -1],)
    entering = batched_linear(inputs, get(f"weight_ih_{name}"), biases[0]).unbind(2)
    rows, samples = inputs.shape[:2]
    state: tuple[Tensor, ...] = (entering[0].new_zeros(rows, samples, module.hidden_size),)
    if isinstance(module, nn.LSTM):
        state = (state[0], state[0].float())
    cell = cell_of(module)
    outputs: list[Tensor] = []
    for given in reversed(entering) if backwards else entering:
        state = cell(given, batched_linear(state[0], weight, biases[1]), state)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if backwards else outputs, dim=2), state


def is_by_hand(module: nn.RNNBase, inputs: Tensor) -> bool:
    """On a CPU the backward passes of RNN and GRU are written out; a GPU's graphs have no use for it."""
    return isinstance(module, (nn.RNN, nn.GRU)) and not inputs.is_cuda and not torch.is_autocast_enabled("cpu")


def cell_of(module: nn.RNNBase) -> Callable[[Tensor, Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]:
    if isinstance(module, nn.LSTM):
        return lstm_cell
    if isinstance(module, nn.GRU):
        return gru_cell
    act = torch.tanh if module.nonlinearity == "tanh" else torch.relu
    return lambda given, hidden, state: (act(given + hidden),)


def lstm_cell(given: Tensor, hidden: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    total = given + hidden
    size = total.shape[-1] // 4
    enter, forget = total[..., : 2 * size].sigmoid().chunk(2, dim=-1)
    new, leave = total[..., 2 * size : 3 * size].tanh(), total[..., 3 * size :].sigmoid()
    inside = forget * state[1] + enter * new
    return (leave * inside.tanh()).to(given.dtype), inside


def gru_cell(given: Tensor, hidden: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    size = given.shape[-1] // 3
    reset, update = (given[..., : 2 * size] + hidden[..., : 2 * size]).sigmoid().chunk(2, dim=-1)
    new = torch.addcmul(given[..., 2 * size :], reset, hidden[..., 2 * size :]).tanh()
    return (torch.lerp(new, state[0], update),)
