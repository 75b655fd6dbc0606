"""Tasks, one a file; `torch` takes one's own."""

from walktalk.lazy import listing
from walktalk.learning.tasks.cifar10 import cifar10
from walktalk.learning.tasks.digits import digits
from walktalk.learning.tasks.fashion_mnist import fashion_mnist
from walktalk.learning.tasks.given import section_of
from walktalk.learning.tasks.mnist import mnist
from walktalk.learning.tasks.mnli import mnli
from walktalk.learning.tasks.own import torch
from walktalk.learning.tasks.parts import NEWCOMER, Node
from walktalk.learning.tasks.quadratic import QuadraticFacts, quadratic
from walktalk.learning.tasks.random_images import random_images
from walktalk.learning.tasks.registry import TASKS, build, build_part, task_settings
from walktalk.learning.tasks.weights import Weights, starting_from

__all__ = [
    "NEWCOMER",
    "TASKS",
    "Node",
    "QuadraticFacts",
    "Weights",
    "build",
    "build_part",
    "cifar10",
    "digits",
    "fashion_mnist",
    "mnist",
    "mnli",
    "quadratic",
    "random_images",
    "section_of",
    "starting_from",
    "task_settings",
    "torch",
]

__dir__ = listing(__all__)
