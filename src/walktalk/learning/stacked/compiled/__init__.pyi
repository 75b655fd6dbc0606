from .model import CompiledModel as CompiledModel
