"""Recurrent layers of many models at once: the product with the inputs for all times together, then step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from walktalk.learning.stacked.products import batched_linear
from walktalk.learning.stacked.tensors import NotStackable, Pass, StackedTensor

# RNN and GRU of many models on a CPU, written out by hand: a handful of operations for each time, there and back.
#
# Through autograd every time is thirty small operations with memory of their own. Here what can be had for all times
# together is, in memory laid out time after time; left for each time are products and what stands between them.


class BatchedRNN(torch.autograd.Function):
    """The states [W, T, B, H] of a plain recurrent layer that starts from zero.

    entering: [W, T, B, H], the inputs' part with all biases. weight: [W, H, H], of the state before. relu: its
    non-linearity; else tanh.
    """

    @staticmethod
    def forward(ctx: Any, entering: Tensor, weight: Tensor, relu: bool) -> Tensor:
        states = entering.contiguous().clone()
        each, turned = states.unbind(1), weight.transpose(1, 2)
        for t, state in enumerate(each):
            if t > 0:
                state.baddbmm_(each[t - 1], turned)
            state.relu_() if relu else state.tanh_()
        ctx.save_for_backward(weight, states)
        ctx.relu = relu
        return states

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, states = ctx.saved_tensors
        rows, times, samples, size = states.shape
        by_sum = (states > 0).to(states.dtype) if ctx.relu else 1 - states * states  # of a state by what it is made of
        for_sum = gradient.clone(memory_format=torch.contiguous_format)
        factors, derivatives = by_sum.unbind(1), for_sum.unbind(1)
        for t in range(times - 1, -1, -1):
            derivatives[t].mul_(factors[t])
            if t > 0:
                derivatives[t - 1].baddbmm_(derivatives[t], weight)
        later = for_sum[:, 1:].reshape(rows, (times - 1) * samples, size)
        for_weight = torch.bmm(later.transpose(1, 2), states[:, :-1].reshape(later.shape))
        return for_sum, for_weight, None


class BatchedGRU(torch.autograd.Function):
    """The states [W, T, B, H] of a GRU that starts from zero.

    entering: [W, T, B, 3H], the inputs' part of reset gate, update gate and new state, with all biases but one.
    weight: [W, 3H, H], of the state before. bias: [W, H], of the state's part of the new state; None: there is none.
    """

    @staticmethod
    def forward(ctx: Any, entering: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, times, samples, size = *entering.shape[:3], weight.shape[2]
        gates, new = (part.contiguous() for part in entering.split((2 * size, size), dim=3))
        inside = entering.new_zeros(rows, times, samples, size)  # the state's part of the new state, before the reset
        if bias is not None:
            inside += bias.view(rows, 1, 1, size)
        states = entering.new_empty(rows, times + 1, samples, size)
        states[:, 0] = 0.0
        for_gates, for_new = (part.transpose(1, 2) for part in weight.split((2 * size, size), dim=1))
        all_states, resets, updates = states.unbind(1), gates[..., :size].unbind(1), gates[..., size:].unbind(1)
        for t, (both, old, made) in enumerate(zip(gates.unbind(1), inside.unbind(1), new.unbind(1), strict=True)):
            state = all_states[t]
            both.baddbmm_(state, for_gates).sigmoid_()
            old.baddbmm_(state, for_new)
            made.addcmul_(resets[t], old).tanh_()
            torch.lerp(made, state, updates[t], out=all_states[t + 1])
        ctx.save_for_backward(weight, gates, inside, new, states)
        ctx.has_bias = bias is not None
        return states[:, 1:]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, gates, inside, new, states = ctx.saved_tensors
        rows, times, samples, size = new.shape
        reset, update, before = gates[..., :size], gates[..., size:], states[:, :-1]
        by_new = (1 - update) * (1 - new * new)  # of a state by what is inside of the new one's tanh
        # Of a state by both gates' sums and by `inside`: with the derivative by a state, all that its weights need.
        by_all = new.new_empty(rows, times, samples, 3, size)
        torch.mul(by_new * inside, reset * (1 - reset), out=by_all[..., 0, :])
        torch.mul(before - new, update * (1 - update), out=by_all[..., 1, :])
        torch.mul(by_new, reset, out=by_all[..., 2, :])
        by_state = gradient.clone(memory_format=torch.contiguous_format)
        derivatives, factors, kept = by_state.unbind(1), by_all.unbind(1), update.unbind(1)
        for_all = torch.empty_like(by_all)
        places, flat = for_all.unbind(1), for_all.flatten(3).unbind(1)
        for t in range(times - 1, -1, -1):
            torch.mul(derivatives[t].unsqueeze(2), factors[t], out=places[t])
            if t > 0:
                derivatives[t - 1].addcmul_(derivatives[t], kept[t]).baddbmm_(flat[t], weight)
        spread = for_all.view(rows, times * samples, 3 * size)
        for_weight = torch.bmm(spread.transpose(1, 2), before.reshape(rows, times * samples, size))
        for_bias = for_all[..., 2, :].sum((1, 2)) if ctx.has_bias else None
        torch.mul(by_state, by_new, out=for_all[..., 2, :])  # which the inputs' part of the new state is changed by
        return for_all.flatten(3), for_weight, for_bias


def gru(
    inputs: Tensor, weights: tuple[Tensor, Tensor], biases: tuple[Tensor, Tensor] | None, backwards: bool
) -> Tensor:
    """The states [W, B, T, H] for inputs [W, B, T, features].

    weights: [W, 3H, features] of the inputs and [W, 3H, H] of the states. biases: [W, 3H] of both; None: there are
    none. backwards: from the last time to the first.
    """
    of_inputs, of_states = weights
    ordered, outer, inner = inputs.transpose(1, 2), None, None
    if biases is not None:
        *gates, inner = biases[1].chunk(3, dim=1)
        outer = biases[0] + torch.cat((*gates, torch.zeros_like(inner)), dim=1)
    entering = batched_linear(ordered.flip(1) if backwards else ordered, of_inputs, outer)
    states: Tensor = BatchedGRU.apply(entering, of_states, inner)  # type: ignore[no-untyped-call]
    return (states.flip(1) if backwards else states).transpose(1, 2)


def rnn(
    inputs: Tensor, weights: tuple[Tensor, Tensor], biases: tuple[Tensor, Tensor] | None, backwards: bool, relu: bool
) -> Tensor:
    """One direction of a plain recurrent layer: weights of H in place of 3H; relu: its non-linearity, else tanh."""
    ordered = inputs.transpose(1, 2)
    bias = None if biases is None else biases[0] + biases[1]
    entering = batched_linear(ordered.flip(1) if backwards else ordered, weights[0], bias)
    states: Tensor = BatchedRNN.apply(entering, weights[1], relu)  # type: ignore[no-untyped-call]
    return (states.flip(1) if backwards else states).transpose(1, 2)


Get = Callable[[str], Tensor]


def recurrent(args: list[Any], kwargs: dict[str, Any], module: Any, get: Get, run: Pass) -> Any:
    """torch.nn.RNN, LSTM and GRU: (outputs, last state), as torch gives them."""
    if len(args) > 1 or kwargs or module.proj_size:
        raise NotStackable("this kind of recurrent layer")
    x: StackedTensor = args[0]
    if x.stacked().dim() != 4:
        raise NotStackable("a recurrent layer without samples")
    outputs, *states = (StackedTensor(tensor, x.rows) for tensor in in_steps(x, module, get, run))
    return outputs, tuple(states) if isinstance(module, nn.LSTM) else states[0]


def in_steps(x: StackedTensor, module: nn.RNNBase, get: Get, run: Pass) -> list[Tensor]:
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
    """Runs one layer in one direction over inputs [W, B, T, features]: its outputs, and its last state."""
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
