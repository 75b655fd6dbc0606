"""Optimizers, as a person writes them in Python."""

from __future__ import annotations

from walktalk.learning import OptimizerSpec

Optimizer = OptimizerSpec  # its public name


def SGD(lr: float = 0.05, momentum: float = 0.9, nesterov: bool = True, weight_decay: float = 0.0) -> OptimizerSpec:
    """Stochastic gradient descent; the defaults are the paper's (Table 5).

    Args:
        lr: Learning rate.
        momentum: Share of the last step that is kept; 0 for none.
        nesterov: Nesterov's form of momentum.
        weight_decay: Weight decay, as torch.optim has it.
    """
    return OptimizerSpec(
        name="sgd", lr=lr, momentum=momentum, nesterov=nesterov and momentum > 0, weight_decay=weight_decay
    )


def Adam(
    lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0
) -> OptimizerSpec:
    """Adam, as torch.optim.Adam.

    Args:
        lr: Learning rate.
        betas: How slowly the two running means forget.
        eps: Added to the denominator.
        weight_decay: Weight decay, as torch.optim has it.
    """
    return OptimizerSpec(name="adam", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)


def AdamW(
    lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2
) -> OptimizerSpec:
    """AdamW, as torch.optim.AdamW.

    Args:
        lr: Learning rate.
        betas: How slowly the two running means forget.
        eps: Added to the denominator.
        weight_decay: Weight decay, as torch.optim has it.
    """
    return OptimizerSpec(name="adamw", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
